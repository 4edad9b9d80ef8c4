"""Observations as a network reads them: numbers as they are, choices as a 1 among zeros."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from flowrl.batch import Array
from flowrl.errors import ConfigError

__all__ = ["OneHot", "encoder_for"]

# N rows, D choices of an observation


class OneHot:
    """Choices with a column for each value they may have: 1 for the one that it has, 0 for the others.

    >>> OneHot(gym.spaces.MultiDiscrete([2, 3, 4]))(np.array([[1, 2, 0]])).tolist()
    [[0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]]

    `space` is the Box of what comes out.
    """

    def __init__(self, observation_space: gym.spaces.Discrete | gym.spaces.MultiDiscrete) -> None:
        one = isinstance(observation_space, gym.spaces.Discrete)
        sizes = np.atleast_1d(observation_space.n if one else observation_space.nvec).ravel()
        self.space = gym.spaces.Box(0.0, 1.0, (int(sizes.sum()),))
        self._first_columns = np.cumsum(sizes) - sizes - np.ravel(observation_space.start)

    def __call__(self, obs: Array) -> Array:
        """Rows `[N, I]` (float32) for observations `[N]` or `[N, ...]` of the space."""
        encoded = np.zeros((len(obs), *self.space.shape), np.float32)
        encoded[np.arange(len(obs))[:, None], obs.reshape(len(obs), -1) + self._first_columns] = 1.0
        return encoded


def encoder_for(observation_space: gym.Space[Any], observation_filter: str) -> OneHot | None:
    """What encodes a space's observations; None where a network reads them as they are."""
    if not isinstance(observation_space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return None
    if observation_filter != "NoFilter":
        raise ConfigError(
            f"observation_filter={observation_filter!r}: {observation_space} has choices, of which a network sees zeros and ones, and no "
            "numbers to normalise: take 'NoFilter'"
        )
    return OneHot(observation_space)
