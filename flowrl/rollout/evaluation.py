"""How good a policy is: whole episodes in envs of their own, counted by nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flowrl.batch import EpisodeStats
from flowrl.env.vector import EnvVector
from flowrl.policy.policy import Policy

__all__ = ["play", "summary_of"]


def play(policy: Policy, envs: EnvVector, num_episodes: int, explore: bool = False) -> list[EpisodeStats]:
    """Exactly `num_episodes` finished episodes, the same number of each env, give or take one.

    Which episodes count is settled before they are played: taking the first that finish would favour short ones.
    """
    left = [len(range(index, num_episodes, envs.num_envs)) for index in range(envs.num_envs)]
    played: list[list[EpisodeStats]] = [[] for _ in left]
    returns = [0.0] * envs.num_envs
    while any(left):
        for index in envs.reset_ended():
            returns[index] = 0.0
        actions, _ = policy.act(envs.obs, explore)
        rewards, ended = envs.step(actions)
        returns = [total + reward for total, reward in zip(returns, rewards)]
        for end in ended:
            if left[end.env]:
                left[end.env] -= 1
                played[end.env].append(EpisodeStats(returns[end.env], envs.lengths[end.env], envs.worker))
        envs.take_finished()
    return [episode for own in played for episode in own]


def summary_of(episodes: Sequence[EpisodeStats]) -> dict[str, Any]:
    """Of episodes: `episode_return_mean|std|min|max`, `episode_len_mean`, `num_episodes`, and each of the `episode_returns`."""
    returns = np.array([episode.episode_return for episode in episodes], np.float64)
    return {
        "episode_return_mean": float(returns.mean()),
        "episode_return_std": float(returns.std()),
        "episode_return_min": float(returns.min()),
        "episode_return_max": float(returns.max()),
        "episode_len_mean": float(np.mean([episode.length for episode in episodes])),
        "num_episodes": len(episodes),
        "episode_returns": returns.tolist(),
    }
