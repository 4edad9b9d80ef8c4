"""How good an evaluation is: functions `(config, evaluation) -> float` that the table names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from flowrl.batch import Array, SampleBatch
from flowrl.config import AlgorithmConfig
from flowrl.policy import Policy
from flowrl.rollout.trained import TrainedPolicy
from tests.envs import PointMass, riccati

__all__ = ["cost_over_optimum", "mean_return"]


def mean_return(config: AlgorithmConfig, evaluation: Mapping[str, Any]) -> float:
    """The mean return of the episodes."""
    return float(evaluation["episode_return_mean"])


def cost_over_optimum(config: AlgorithmConfig, evaluation: Mapping[str, Any]) -> float:
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
