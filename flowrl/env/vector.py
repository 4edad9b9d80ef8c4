"""A worker's envs, stepped in turn, with an explicit reset, so that every step taken is a row of experience.

There is no autoreset: an env whose episode has ended keeps its last observation until `reset_ended` is called, just before
the next actions are chosen. Gymnasium's own vectors insert rows that nobody acted in, or hide the last observation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from flowrl.batch import Array, EpisodeStats
from flowrl.env.fitting import HIGHEST, number, writer
from flowrl.env.spaces import checked_space, dtype_of, for_env, shape_of
from flowrl.errors import ConfigError

__all__ = ["Ended", "EnvVector"]

_LOWEST = -HIGHEST


class Ended(NamedTuple):
    """An episode that ended in the last step: in which env, and how. Where both are true, the termination is what counts."""

    env: int
    terminated: bool
    truncated: bool


class EnvVector:
    """`num_envs` gymnasium envs with the same spaces: Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of these.

    Made from envs that were never reset; the first `reset_ended` resets them all, each with a seed of its own spawned from
    `seed` (later resets pass none, so an env goes on with its own generator). Then: `reset_ended`, act on `obs`, `step`, again.

    `obs` `[N, ...]` holds each env's last observation, in the dtype of its space (a Dict's or Tuple's has a field for each part, see
    `flowrl.env.spaces`), and is overwritten by the next step: copy what you keep. `episodes[i]` numbers the episode that env i is in
    (from 0, over all envs of the vector), `lengths[i]` counts its steps.

    **An env that raises**, or gives what it must not (a wrong shape, a NaN), keeps its exception's type and gains a note. Its
    unfinished episode counts nowhere, the next `reset_ended` resets it, the other envs go on where they are.
    """

    def __init__(self, envs: Sequence[Any], seed: np.random.SeedSequence, worker: int = 0) -> None:
        if not envs:
            raise ValueError("no envs: a vector needs at least one")
        self.envs = list(envs)
        self.num_envs = len(envs)
        self.worker = worker
        self.observation_space, self.action_space = _checked_spaces(envs)
        self.obs: Array = np.zeros((self.num_envs, *shape_of(self.observation_space)), dtype_of(self.observation_space))
        self._write = writer(self.observation_space, self.obs)
        self._for_env = for_env(self.action_space)
        self.lengths = [0] * self.num_envs
        self.episodes = [-1] * self.num_envs
        self._returns = [0.0] * self.num_envs
        self._has_ended = [True] * self.num_envs
        self._finished: list[EpisodeStats] = []
        self._num_started = 0
        self._seeds: list[int | None] = []
        for env, env_seed in zip(self.envs, seed.spawn(self.num_envs)):
            for_reset, for_actions = env_seed.generate_state(2) >> 1  # some simulators take 31 bits
            self._seeds.append(int(for_reset))
            env.action_space.seed(int(for_actions))
        self._one_number = isinstance(self.action_space, gym.spaces.Discrete)
        self._are_numbers = isinstance(self.observation_space, gym.spaces.Box)
        self._zeros = np.zeros(self.obs.size, self.obs.dtype) if self.obs.dtype.kind == "f" else None

    def reset_ended(self) -> list[int]:
        """Begin a new episode in every env that has none, and say which those are."""
        started = [index for index in range(self.num_envs) if self._has_ended[index]]
        for index in started:
            self._begin(index)
        return started

    def step(self, actions: Array) -> tuple[list[float], list[Ended]]:
        """Take one step in every env: their rewards, and the episodes that ended; `obs` then holds the new observations.

        `actions` `[N]` or `[N, ...]`: one for each env, as its action space has them. An env gets a Python int, an array of its own, or
        a dict or tuple of these.
        """
        choices = actions.tolist() if self._one_number else [self._for_env(row) for row in actions]
        if len(choices) != self.num_envs:
            raise ValueError(f"{len(choices)} actions for {self.num_envs} envs: act has to return one for each row of obs")
        rewards: list[float] = []
        ended: list[Ended] = []
        obs, lengths, returns, shape, ndarray = self.obs, self.lengths, self._returns, self.obs.shape[1:], np.ndarray
        dtype = obs.dtype if self._are_numbers else None  # all else has to be looked at, one by one
        index = 0
        try:
            for index, env in enumerate(self.envs):
                new_obs, reward, terminated, truncated, _ = env.step(choices[index])
                if type(new_obs) is ndarray and new_obs.dtype is dtype and new_obs.shape == shape:
                    obs[index] = new_obs
                else:
                    self._write(index, new_obs)
                if type(reward) is not float or not _LOWEST <= reward <= HIGHEST:
                    reward = number(reward)
                lengths[index] += 1
                returns[index] += reward
                rewards.append(reward)
                if terminated or truncated:
                    ended.append(Ended(index, bool(terminated), bool(truncated)))
            if bad := self._not_finite():
                index = bad[0]
                for other in bad:
                    self._has_ended[other] = True
                raise ValueError(f"observation {obs[index]!r:.200}: expected finite numbers, mend the env or wrap it")
        except BaseException as error:
            self._has_ended[index] = True
            error.add_note(self._where(index, f"after {lengths[index]} steps of its episode"))
            raise
        finally:
            for end in ended:
                if not self._has_ended[end.env]:
                    self._finish(end.env)
        return rewards, ended

    def take_finished(self) -> tuple[EpisodeStats, ...]:
        """The episodes that finished since the last call."""
        finished, self._finished = tuple(self._finished), []
        return finished

    def close(self) -> None:
        """Close every env, also where one raises."""
        errors: list[Exception] = []
        for env in self.envs:
            try:
                env.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _begin(self, index: int) -> None:
        env, seed = self.envs[index], self._seeds[index]
        try:
            first_obs, _ = env.reset() if seed is None else env.reset(seed=seed)
            self._write(index, first_obs)
        except BaseException as error:
            error.add_note(self._where(index, "in its reset"))
            raise
        self._seeds[index] = None
        self._has_ended[index] = False
        self.lengths[index], self._returns[index], self.episodes[index] = 0, 0.0, self._num_started
        self._num_started += 1

    def _finish(self, index: int) -> None:
        self._has_ended[index] = True
        self._finished.append(EpisodeStats(self._returns[index], self.lengths[index], self.worker))

    def _not_finite(self) -> list[int]:
        # NaN * 0 and inf * 0 are NaN: one product is a quarter of the cost of np.isfinite on few numbers.
        if self._zeros is None or not math.isnan(float(self.obs.ravel().dot(self._zeros))):
            return []
        return [index for index in range(self.num_envs) if not np.isfinite(self.obs[index]).all()]

    def _where(self, index: int, moment: str) -> str:
        return (
            f"env {index} of {self.num_envs} of worker {self.worker} ({self.envs[index]}), {moment}: "
            "its unfinished episode is dropped, and the next sample() resets it"
        )


def _checked_spaces(envs: Sequence[Any]) -> tuple[Any, Any]:
    observation_space, action_space = envs[0].observation_space, envs[0].action_space
    for index, env in enumerate(envs):
        if env.observation_space != observation_space or env.action_space != action_space:
            raise ConfigError(
                f"env {index} has {env.observation_space} and {env.action_space}, env 0 has {observation_space} and {action_space}: "
                "the envs of a worker need the same spaces"
            )
    checked_space(observation_space, f"observation space of {envs[0]}:", "wrap the env (gymnasium.wrappers.FlattenObservation, say)")
    checked_space(action_space, f"action space of {envs[0]}:", "wrap the env or choose another one")
    return observation_space, action_space
