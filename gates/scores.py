"""How good what was trained is: functions `(config, evaluation, act) -> float` that the table names.

`evaluation` is `Trainer.evaluate`'s, `act` gives the trained policy's likeliest action for one observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from flowrl.batch import Array, SampleBatch
from flowrl.config import AlgorithmConfig
from flowrl.policy import Policy
from flowrl.rollout.trained import TrainedPolicy
from tests.envs import PointMass, frozen_lake, riccati

__all__ = ["cost_over_optimum", "mean_return", "optimal_values", "start_value_over_optimum", "tabulated", "values_of"]

Act: TypeAlias = Callable[[Any], Any]

# S states, A actions


def mean_return(config: AlgorithmConfig, evaluation: Mapping[str, Any], act: Act) -> float:
    """The mean return of the episodes."""
    return float(evaluation["episode_return_mean"])


def cost_over_optimum(config: AlgorithmConfig, evaluation: Mapping[str, Any], act: Act) -> float:
    """The mean cost of a point mass over the least possible from the very same starts.

    The best controller plays the same episodes, of envs with the same seeds. None of its episodes can cost more than ours: an
    error says so where one does, for then they were not the same.
    """
    envs = PointMass()
    best = TrainedPolicy(_BestConfig(env=PointMass, seed=config.seed), envs.observation_space, envs.action_space)
    costs = -np.array(evaluation["episode_returns"])
    least = -np.array(best.evaluate(len(costs))["episode_returns"])
    if (costs < least * (1 - 1e-4)).any():
        raise ValueError("an episode cost less than is possible from its start: both must be evaluated with the same seeds")
    return float(costs.mean() / least.mean())


def start_value_over_optimum(config: AlgorithmConfig, evaluation: Mapping[str, Any], act: Act) -> float:
    """What the trained policy is worth at the start of the frozen lake, over the most that any policy is: both exact, from its table.

    Values are discounted by `config.gamma`, of the lake without the limit on steps that its episodes have.
    """
    env = frozen_lake(config.env_config or {})
    lake = env.unwrapped
    probs, rewards = tabulated(lake.P)
    policy = np.array([act(env.observation(state)) for state in range(len(probs))])
    start = lake.initial_state_distrib
    return float(start @ values_of(policy, probs, rewards, config.gamma) / (start @ optimal_values(probs, rewards, config.gamma)))


def tabulated(table: Mapping[int, Mapping[int, Any]]) -> tuple[Array, Array]:
    """Where each action leads `[S, A, S]` while the episode goes on, and what it pays `[S, A]`.

    `table[s][a]` lists (probability, next state, reward, whether it terminates), as gymnasium's toy texts have it.

    >>> probs, rewards = tabulated({0: {0: [(0.75, 0, 0.0, False), (0.25, 0, 8.0, True)]}})
    >>> probs.tolist(), rewards.tolist()
    ([[[0.75]]], [[2.0]])
    """
    num_states, num_actions = len(table), len(table[0])
    probs, rewards = np.zeros((num_states, num_actions, num_states)), np.zeros((num_states, num_actions))
    for state, action in np.ndindex(num_states, num_actions):
        for prob, next_state, reward, terminated in table[state][action]:
            rewards[state, action] += prob * reward
            probs[state, action, next_state] += prob * (not terminated)
    return probs, rewards


def values_of(policy: Array, probs: Array, rewards: Array, gamma: float) -> Array:
    """The value of each state `[S]` under the actions `policy` `[S]`: V = (I - gamma P)^-1 r (Sutton and Barto, 2018, section 4.1)."""
    states = np.arange(len(policy))
    values: Array = np.linalg.solve(np.eye(len(policy)) - gamma * probs[states, policy], rewards[states, policy])
    return values


def optimal_values(probs: Array, rewards: Array, gamma: float) -> Array:
    """The most that each state can be worth `[S]`: value iteration (Sutton and Barto, 2018, section 4.4), to within 1e-12 a sweep."""
    values: Array = np.zeros(len(probs))
    while True:
        better: Array = (rewards + gamma * probs @ values).max(axis=1)
        if np.abs(better - values).max() < 1e-12:
            return better
        values = better


@dataclass(frozen=True, kw_only=True, eq=False)
class _BestConfig(AlgorithmConfig):
    """The env and seed that the best controller plays."""

    def make_policy(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], seed: np.random.SeedSequence) -> Policy:
        """The best controller."""
        return _BestController()


class _BestController(Policy):
    """u = -gain x with the gains of `riccati`. Each call is a step; all envs are at the same step, since all episodes are as long."""

    def __init__(self) -> None:
        self.network = nn.Identity()
        self.gains, _ = riccati(PointMass.A, PointMass.B, PointMass.Q, PointMass.R, PointMass.HORIZON)
        self.t = 0

    def act(self, obs: Array, explore: bool) -> tuple[Array, dict[str, Array]]:
        """The best actions `[N, 2]`."""
        gain = self.gains[self.t % PointMass.HORIZON]
        self.t += 1
        return (-obs @ gain.T).astype(np.float32), {}

    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """It has nothing to learn."""
        raise NotImplementedError("the best controller is not trained")
