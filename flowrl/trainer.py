"""The short way to train: a config, its plan and its workers behind one handle."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from flowrl.config import AlgorithmConfig
from flowrl.errors import ConfigError, NotOpenError, PlanError, RunError
from flowrl.iter.iterators import LocalIterator
from flowrl.iter.stream import Stream
from flowrl.references import nearest
from flowrl.rollout.trained import TrainedPolicy, load_policy, load_weights
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["Trainer", "load_policy"]


class Trainer:
    """Trains by a plan, result by result. Made by `config.build()`; nothing starts until it is used.

    >>> from flowrl.algorithms.ppo import PPOConfig
    >>> with PPOConfig(env="CartPole-v1", train_batch_size=400).build() as trainer:
    ...     result = trainer.train()
    ...     action = trainer.compute_action([0.0, 0.0, 0.0, 0.0])
    >>> result["num_steps_sampled"], action in (0, 1)
    (400, True)

    `plan` is the plan, `workers` its workers, `stream` the running plan. It opens the workers when it is first used and closes
    them at the end of the `with` block, or by `close()`; the policy stays: it can still act, be evaluated and saved.
    """

    def __init__(self, config: AlgorithmConfig, execution_plan: Callable[[Any, Any], Any] | None = None) -> None:
        self.config = config
        self.workers = WorkerSet(config)
        self.plan = _plan(config, self.workers, execution_plan)
        self.last_result: dict[str, Any] | None = None
        """What `train()` gave last."""
        self._opened = ExitStack()
        self._stream: Stream[Any] | None = None
        self._is_closed = False
        self._trained: TrainedPolicy | None = None

    @property
    def stream(self) -> Stream[Any]:
        """The running plan: `.metrics`, `.draw(path)` and `.explain()` show what has passed so far."""
        self._open()
        if self._stream is None:
            self._stream = self._opened.enter_context(self.plan.run(engine=self.workers.engine))
        return self._stream

    def train(self) -> dict[str, Any]:
        """The next result of the plan. An error of a user's own code comes as it is; the next call goes on after it."""
        try:
            result: dict[str, Any] = next(self.stream)
        except StopIteration:
            raise RunError("the plan has come to its end: there are no more results, build another trainer") from None
        self.last_result = result
        return result

    def train_until(self, **targets: float) -> dict[str, Any]:
        """Train until one of the result's numbers is as high as its target; the result that was.

            trainer.train_until(episode_return_mean=475, num_steps_sampled=200_000)

        A number that is NaN (the mean return before the first episode) has not reached anything. Where a target was reached
        before, nothing more is trained.
        """
        if not targets:
            raise ConfigError("train_until needs a target: train_until(episode_return_mean=475, num_steps_sampled=200_000), say")
        result = self.last_result or self.train()
        while not any(_has_reached(result, name, target) for name, target in targets.items()):
            result = self.train()
        return result

    def evaluate(self, num_episodes: int = 100, explore: bool = False, seed: int | None = None) -> dict[str, Any]:
        """The policy as it is now, over whole episodes in envs of their own, never counted as training; see `TrainedPolicy.evaluate`."""
        return self._policy_now().evaluate(num_episodes, explore, seed)

    def compute_action(self, obs: Any, explore: bool = False) -> Any:
        """The action for one observation, as the env takes it: the likeliest, or drawn with `explore`."""
        return self._policy_now().compute_action(obs, explore)

    def save(self, path: str | Path) -> Path:
        """Write the policy as it is now into the folder `path`, for `load` and `flowrl.load_policy`: safetensors and JSON, no pickle."""
        return self._policy_now().save(path)

    def load(self, path: str | Path) -> None:
        """Go on with the policy that `save` wrote, in all workers; a target network takes it over too.

        What the optimizer remembers is not in it, nor what adapts (`kl_coeff`).
        """
        self._open()
        weights, local = load_weights(path), self.workers.local_worker()
        try:
            local.set_weights(weights)
            local.update_target()
        except ValueError as error:
            raise ConfigError(f"the policy in {path} does not fit this config: {error}") from None
        for call in self.workers.sync_weights():
            self.workers.engine.result(call)

    def close(self) -> None:
        """Stop the plan and the workers. The policy stays."""
        if not self._is_closed:
            try:
                if self.workers.is_open:
                    self._policy_now()
            finally:
                self._is_closed = True
                self._opened.close()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if "_is_closed" in self.__dict__ and not self._is_closed and self.workers.is_open:
            message = f"{self!r} was never closed: use `with config.build() as trainer:`, or trainer.close()"
            self._is_closed = True
            self._opened.close()
            warnings.warn(message, ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self.workers.is_open else "not yet open"
        return f"Trainer({type(self.config).__name__}, {state})"

    def _open(self) -> None:
        if self._is_closed:
            raise NotOpenError("this trainer is closed: build another one with config.build(), and load() what you saved")
        if not self.workers.is_open:
            self._opened.enter_context(self.workers.open())

    def _policy_now(self) -> TrainedPolicy:
        """A policy beside the workers', so that acting takes none of their random numbers, with the newest weights."""
        if not self._is_closed:
            self._open()
            local = self.workers.local_worker()
            if self._trained is None:
                self._trained = TrainedPolicy(self.config, local.envs.observation_space, local.envs.action_space)
            self._trained.set_weights(local.get_weights())
        if self._trained is None:
            raise NotOpenError("this trainer was closed before it was used: build another one with config.build()")
        return self._trained


def _plan(config: AlgorithmConfig, workers: WorkerSet, execution_plan: Callable[[Any, Any], Any] | None) -> LocalIterator[Any]:
    if execution_plan is not None and not callable(execution_plan):
        raise ConfigError(f"build({execution_plan!r:.100}): expected a function that makes a plan, execution_plan(workers, config)")
    if execution_plan is not None:
        try:
            inspect.signature(execution_plan).bind(workers, config)
        except TypeError as error:
            name = getattr(execution_plan, "__name__", "the plan function")
            raise ConfigError(f"{name} is called as execution_plan(workers, config): {error}") from None
    plan = config.make_plan(workers) if execution_plan is None else execution_plan(workers, config)
    if not isinstance(plan, LocalIterator):
        name = getattr(execution_plan, "__name__", "make_plan")
        raise PlanError(
            f"{name}(workers, config) gave {type(plan).__name__}: expected a stream in the driver (a LocalIterator), "
            "end it with `return StandardMetricsReporting(...)`"
        )
    return plan


def _has_reached(result: Any, name: str, target: float) -> bool:
    if not isinstance(result, dict):
        raise ConfigError(
            f"the plan gives {type(result).__name__}, no results: end it with StandardMetricsReporting, or call train() yourself"
        )
    if not isinstance(target, int | float | np.number):
        raise ConfigError(f"{name}={target!r}: expected a number")
    value = result.get(name)
    if not isinstance(value, int | float):
        numbers = [key for key, number in result.items() if isinstance(number, int | float)]
        raise ConfigError(f"a result has no number {name!r}. {nearest(name, numbers)}")
    return not math.isnan(value) and value >= target
