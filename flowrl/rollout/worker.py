"""A rollout worker: envs, a policy and a sampler in one actor, behind the evaluator interface."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flowrl.batch import Array, SampleBatch
from flowrl.config import AlgorithmConfig
from flowrl.env.making import vectorize
from flowrl.errors import RunError
from flowrl.iter.shard import ParallelIteratorWorker
from flowrl.learner.devices import checked_devices
from flowrl.learner.sgd import Gradients, apply_gradients, compute_gradients, learn_on_batch
from flowrl.metrics.values import Mean
from flowrl.policy.networks import seeded
from flowrl.policy.policy import checked_policy
from flowrl.rollout.sampler import Sampler, worker_seed
from flowrl.rollout.turns import Turns
from flowrl.schedules import value_at

__all__ = ["Fragments", "RolloutWorker"]


class Fragments:
    """Fragments of one sampler, for ever. An error of an env is the error of one fragment, not the end."""

    def __init__(self, sample: Callable[[], SampleBatch]) -> None:
        self.sample = sample

    def __iter__(self) -> Fragments:
        return self

    def __next__(self) -> SampleBatch:
        try:
            return self.sample()
        except StopIteration as error:
            raise RunError(
                "an env or the policy raised StopIteration while a fragment was sampled, which would end the stream: catch it there "
                "(next(iterator, default), say)"
            ) from error


class RolloutWorker(ParallelIteratorWorker):
    """The evaluator: `sample()`, gradients, weights. Index 0 is the local worker in the driver, 1, 2, ... the remote ones.

    Every worker has its own seed, spawned from the config's by its index, and every env one of its own below that; the
    initial weights depend on the config's seed alone, so all workers begin alike. Building steps and resets no env.

    Where a learner thread works with it, weights are read without waiting, those of the last whole step; any other call waits for
    the step that the learner is making, and the learner's next step for the call.
    """

    def __init__(self, config: AlgorithmConfig, index: int = 0, incarnation: int = 0) -> None:
        super().__init__(lambda: Fragments(self.sample), repeat=False)
        self.config, self.index = config, index
        self._turns = Turns()
        self._published: tuple[dict[str, Array], int] | None = None
        """The weights of the learner's last step and their version, never changed: for those who ask during its next one."""
        self.num_changes = 0
        """How often the weights may have changed, in whatever way."""
        self.devices = checked_devices(config.devices) if index == 0 else ()  # remote workers take no GPU: they learn where the policy is
        envs_seed, policy_seed, learner_seed = worker_seed(config.seed, index, incarnation).spawn(3)
        samples = index > 0 or config.num_workers == 0  # else one env, for its spaces
        self.envs = vectorize(config.env, config.env_config, config.num_envs if samples else 1, envs_seed, worker=index)
        try:
            self._make_policy(policy_seed)
        except BaseException:
            self.envs.close()
            raise
        self.sampler = Sampler(self.envs, self.policy, config.rollout_fragment_length, worker=index, incarnation=incarnation)
        self._rng = np.random.default_rng(learner_seed)

    def _make_policy(self, seed: np.random.SeedSequence) -> None:
        config, spaces = self.config, (self.envs.observation_space, self.envs.action_space)
        self.policy = seeded(config.seed, lambda: checked_policy(config.make_policy(*spaces, seed)))
        self.policy.worker_index = self.index
        self.optimizer = self.policy.make_optimizer(config.lr)

    @property
    def policy_version(self) -> int:
        """How many updates the weights have seen."""
        return self.sampler.policy_version

    def sample(self, num_steps_sampled: int | None = None) -> SampleBatch:
        """One fragment: `num_envs * rollout_fragment_length` rows. `num_steps_sampled` as for `learn_on_batch`."""
        with self._turns:
            if num_steps_sampled is not None:
                self.policy.num_steps_sampled = num_steps_sampled
            return self.sampler.sample()

    def learn_on_batch(
        self,
        batch: SampleBatch,
        num_sgd_iter: int = 1,
        sgd_minibatch_size: int = 0,
        num_steps_sampled: int | None = None,
        publish: bool = False,
    ) -> dict[str, Any]:
        """Train on a batch: `num_sgd_iter` passes over shuffled minibatches. The learner's statistics, values that merge.

        `num_steps_sampled`: env steps that the run has sampled so far, for schedules; None: as they were. `publish`: keep a copy of the
        new weights, so that other threads can read them during the next step.
        """
        with self._turns:
            try:
                return self._learn_on_batch(batch, num_sgd_iter, sgd_minibatch_size, num_steps_sampled)
            finally:
                self._changed(publish)

    def publish(self) -> None:
        """Keep a copy of the weights, so that other threads can read them during a step."""
        with self._turns:
            self._changed(publish=True)

    def _changed(self, publish: bool = False) -> None:
        self.num_changes += 1
        self._published = (self.policy.get_weights(), self.policy_version) if publish else None

    def _learn_on_batch(
        self, batch: SampleBatch, num_sgd_iter: int, sgd_minibatch_size: int, num_steps_sampled: int | None
    ) -> dict[str, Any]:
        lr = self._set_progress(num_steps_sampled)
        try:
            grad_clip, devices = self.config.grad_clip, self.devices
            stats = learn_on_batch(self.policy, self.optimizer, batch, self._rng, num_sgd_iter, sgd_minibatch_size, grad_clip, devices)
        finally:
            self.sampler.policy_version += 1  # an error in the middle leaves weights that some minibatches have changed
        return stats | {"lr": Mean.of(lr)}

    def compute_gradients(self, batch: SampleBatch, num_steps_sampled: int | None = None) -> tuple[Gradients, dict[str, Any]]:
        """The gradient of the policy's loss on a batch, by weight name, and statistics, moments with them, that `apply_gradients` takes."""
        with self._turns:
            self._set_progress(num_steps_sampled)
            return compute_gradients(self.policy, batch, self.devices)

    def apply_gradients(
        self, grads: Mapping[str, Array], info: Mapping[str, Any] | None = None, num_steps_sampled: int | None = None
    ) -> dict[str, Mean]:
        """One optimizer step along this gradient; its norm before clipping. `info`: what `compute_gradients` gave with it."""
        with self._turns:
            lr = self._set_progress(num_steps_sampled)
            try:
                stats = apply_gradients(self.policy, self.optimizer, grads, self.config.grad_clip, info)
            finally:
                self.sampler.policy_version += 1  # as above: `policy.learned` comes after the step
                self._changed()
            return stats | {"lr": Mean.of(lr)}

    def compute_apply(self, batch: SampleBatch) -> dict[str, Any]:
        """`compute_gradients` and `apply_gradients` in one."""
        grads, info = self.compute_gradients(batch)
        return info | self.apply_gradients(grads, info)

    def get_weights(self) -> dict[str, Array]:
        """A copy of the weights, by name: all of one version, the newest whole one."""
        return self.get_versioned_weights()[0]

    def get_versioned_weights(self) -> tuple[dict[str, Array], int]:
        """A copy of the weights, and the version that they are of."""
        published = self._published
        if published is not None and self._turns.are_anothers:
            weights, version = published
            return {name: weight.copy() for name, weight in weights.items()}, version
        with self._turns:
            return self.policy.get_weights(), self.policy_version

    def set_weights(self, weights: Mapping[str, Array], policy_version: int | None = None, num_steps_sampled: int | None = None) -> None:
        """Take over weights, copied, and the version that they are of (else one more than before).

        `num_steps_sampled`: env steps that the run has sampled so far, for schedules of exploration; None: as they were.
        """
        with self._turns:
            self.sampler.set_weights(weights, self.policy_version + 1 if policy_version is None else policy_version)
            self._changed()
            if num_steps_sampled is not None:
                self.policy.num_steps_sampled = num_steps_sampled

    def update_target(self) -> None:
        """The policy's target network takes over what is trained."""
        with self._turns:
            self.policy.update_target()

    def get_host(self) -> str:
        """The name of the machine that it runs on."""
        return socket.gethostname()

    def apply(self, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn(self, *args)`, here."""
        with self._turns:
            try:
                return fn(self, *args)
            finally:
                self._changed(publish=self._published is not None)

    def close(self) -> None:
        """Close the envs."""
        self.envs.close()

    def _set_progress(self, num_steps_sampled: int | None) -> float:
        """Schedules go by it: the learning rate here, others in the policy's loss."""
        if num_steps_sampled is not None:
            self.policy.num_steps_sampled = num_steps_sampled
        lr = value_at(self.config.lr_schedule, self.policy.num_steps_sampled, self.config.lr)
        if self.config.lr_schedule is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = lr
        return lr
