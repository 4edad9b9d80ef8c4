"""From envs and a policy to fragments: rows in order, whole, each of one episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flowrl.batch import Array, Origin, SampleBatch
from flowrl.env.vector import EnvVector
from flowrl.policy.policy import Policy

__all__ = ["Sampler", "worker_seed"]

# N envs, T env steps of each in a fragment

_INCARNATION_BITS, _EPISODE_BITS = 12, 36


class Sampler:
    """Fragments of exactly `fragment_length` env steps of every env, each worker's with the policy that it holds then.

    A fragment has N * T rows, env after env, so that the rows of an env are in order: row `i * T + t` is env i's step t. An episode
    that is not over goes on in the next fragment. Where the policy acts with `explore=False`, it takes its likeliest actions.

    Columns: `obs`, `new_obs` (the true last observation where an episode ends), `actions`, `rewards` (float32), `terminateds`,
    `truncateds`, `t` (step in the episode, from 0), `eps_id`, `policy_version`, those that `policy.act` returns, and those that
    `policy.postprocess` adds. `eps_id` (int64) is unique over workers and their lives: worker (15 bits), incarnation (12), episode of
    this sampler (36). An error of an env loses the fragment that was being made; see `EnvVector` for what goes on.
    """

    def __init__(
        self, envs: EnvVector, policy: Policy, fragment_length: int, worker: int = 0, incarnation: int = 0, explore: bool = True
    ) -> None:
        if fragment_length < 1:
            raise ValueError(f"fragment_length={fragment_length}: expected 1 env step or more")
        if not (0 <= worker < 1 << 15 and 0 <= incarnation < 1 << _INCARNATION_BITS):
            raise ValueError(
                f"worker={worker}, incarnation={incarnation}: eps_id has room for workers below 32768 and incarnations below 4096"
            )
        self.envs = envs
        self.policy = policy
        self.fragment_length = fragment_length
        self.worker = worker
        self.incarnation = incarnation
        self.explore = explore
        self.policy_version = 0
        self._seq = 0
        self._first_eps_id = ((worker << _INCARNATION_BITS) + incarnation) << _EPISODE_BITS

    def set_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Sample with these weights from the next fragment on; its rows say `policy_version` = `version`."""
        self.policy.set_weights(weights)
        self.policy_version = version

    def sample(self) -> SampleBatch:
        """The next fragment."""
        fragment = self.policy.postprocess(
            SampleBatch(self._rows(), Origin(self.worker, self.incarnation, self._seq), self.envs.take_finished())
        )
        if not isinstance(fragment, SampleBatch):
            name = type(self.policy).__name__
            raise TypeError(f"{name}.postprocess gave {type(fragment).__name__}: expected the fragment, fragment.with_columns(...) say")
        self._seq += 1
        return fragment

    def _rows(self) -> dict[str, Array]:
        envs, length = self.envs, self.fragment_length
        shape = (envs.num_envs, length)
        obs, new_obs = (np.empty((*shape, *envs.obs.shape[1:]), envs.obs.dtype) for _ in range(2))
        terminateds, truncateds = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        acted: dict[str, Array] = {}
        rewards = []
        episodes = _Episodes(envs, shape)
        for row in range(length):
            episodes.begin(envs.reset_ended(), row)
            obs[:, row] = envs.obs
            answer = self.policy.act(envs.obs, self.explore)
            if not row:
                acted = _room_for(_checked_columns(self.policy, answer, envs.num_envs), length)
            actions, columns = answer
            acted["actions"][:, row] = actions
            for name, values in columns.items():
                acted[name][:, row] = values
            step_rewards, ended = envs.step(actions)
            rewards.append(step_rewards)
            new_obs[:, row] = envs.obs
            for end in ended:
                terminateds[end.env, row], truncateds[end.env, row] = end.terminated, end.truncated
        columns = {
            "obs": obs,
            "rewards": np.array(rewards, np.float32).T.copy(),
            "terminateds": terminateds,
            "truncateds": truncateds,
            "new_obs": new_obs,
            "eps_id": episodes.numbers + self._first_eps_id,
            "t": episodes.t,
            "policy_version": np.full(shape, self.policy_version),
        }
        return {name: _env_after_env(column) for name, column in (acted | columns).items()}


class _Episodes:
    """Which episode each row belongs to, and which step of it is: known when an episode begins, so written only then."""

    def __init__(self, envs: EnvVector, shape: tuple[int, int]) -> None:
        self.envs = envs
        self.numbers = np.empty(shape, np.int64)
        self.t = np.empty(shape, np.int64)
        self.begin(range(envs.num_envs), 0)

    def begin(self, indices: Any, row: int) -> None:
        """From `row` on, these envs are in the episodes that they are in now."""
        for index in indices:
            first = self.envs.lengths[index]
            self.numbers[index, row:] = self.envs.episodes[index]
            self.t[index, row:] = np.arange(first, first + self.numbers.shape[1] - row)


def _checked_columns(policy: Policy, answer: Any, num_envs: int) -> dict[str, Array]:
    """What `act` gave, as columns, if it is what is asked of it; looked at once a fragment."""
    expected = f"expected (actions, columns): an array of {num_envs} actions, and a dict of arrays of {num_envs} rows"
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping)):
        raise TypeError(f"{type(policy).__name__}.act gave {type(answer).__name__}: {expected}")
    columns = {"actions": answer[0], **answer[1]}
    for name, values in columns.items():
        if not isinstance(values, np.ndarray) or not values.ndim or len(values) != num_envs:
            gave = f"an array of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise TypeError(f"{type(policy).__name__}.act gave {gave} as {name!r}: {expected}")
    if not isinstance(answer[0], np.ndarray):
        raise TypeError(f"{type(policy).__name__}.act gave {type(answer[0]).__name__} as its actions: {expected}")
    return columns


def _room_for(first: Mapping[str, Array], length: int) -> dict[str, Array]:
    return {name: np.empty((len(values), length, *values.shape[1:]), values.dtype) for name, values in first.items()}


def _env_after_env(column: Array) -> Array:
    column.flags.writeable = False
    return column.reshape(-1, *column.shape[2:])


def worker_seed(seed: int, worker: int, incarnation: int = 0) -> np.random.SeedSequence:
    """The root of everything random in one life of one worker: spawn from it what needs a stream of its own, always in the same order.

    >>> envs_seed, policy_seed = worker_seed(seed=0, worker=1).spawn(2)
    """
    return np.random.SeedSequence(seed, spawn_key=(worker, incarnation))
