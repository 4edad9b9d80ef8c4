"""Observations as a network reads them: numbers as they are or normalised, choices as a 1 among zeros, images apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from flowrl.batch import Array
from flowrl.env.spaces import Path, at, leaves_of
from flowrl.errors import ConfigError
from flowrl.policy.normalizer import Moments, Normalizer

__all__ = ["Encoder", "OneHot"]

# N rows, D choices of an observation, I columns that the network reads

_CHOICES = (gym.spaces.Discrete, gym.spaces.MultiDiscrete)


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


class Encoder:
    """What a network sees of observations of a space.

    Numbers (a Box of up to two dimensions, bits) are as they are, or normalised by `observation_filter="MeanStdFilter"`; choices
    (Discrete, MultiDiscrete) are one-hot; images (a Box of three dimensions) are as they are, never normalised. The order of a Dict's
    keys plays no part. Flowrl's own networks read all but the images in one row; a model of the user's own reads what is in `space`:
    the observation space, with the Box of its zeros and ones in place of each choice.
    """

    def __init__(self, observation_space: gym.Space[Any], observation_filter: str) -> None:
        leaves = dict(leaves_of(observation_space))
        self._image_paths = [path for path, leaf in leaves.items() if _is_image(leaf)]
        self._one_hots = {path: OneHot(leaf) for path, leaf in leaves.items() if isinstance(leaf, _CHOICES)}
        apart = {*self._image_paths, *self._one_hots}
        self._number_shapes = {path: tuple(leaf.shape) for path, leaf in leaves.items() if path not in apart}
        num_numbers = sum(math.prod(shape) for shape in self._number_shapes.values())
        self.num_flat = num_numbers + sum(one_hot.space.shape[0] for one_hot in self._one_hots.values())
        self.image_spaces = [leaves[path] for path in self._image_paths]
        self.space = _network_space(observation_space)
        self._space = observation_space
        self._is_one_column = leaves.keys() == {()}
        self.obs_filter: Normalizer | None = None
        if observation_filter == "MeanStdFilter":
            if not num_numbers:
                raise ConfigError(
                    f"observation_filter={observation_filter!r}: {observation_space} has choices, of which a network sees zeros and ones, "
                    "or images, and no numbers to normalise: take 'NoFilter'"
                )
            self.obs_filter = Normalizer((num_numbers,))

    def flat(self, obs: Array) -> Array:
        """Numbers, then choices, `[N, I]`: all but the images."""
        parts = [self._numbers(obs)] if self._number_shapes else []
        parts += [one_hot(at(obs, path)) for path, one_hot in self._one_hots.items()]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(obs), 0), np.float32)

    def inputs(self, obs: Array, dtype: torch.dtype) -> Any:
        """What flowrl's own networks read: `flat`; where there are images a tuple of it and of them, `[N, H, W, C]` or `[N, C, H, W]`."""
        flat = torch.tensor(self.flat(obs), dtype=dtype)
        return (flat, *(torch.tensor(at(obs, path)) for path in self._image_paths)) if self._image_paths else flat

    def tree(self, obs: Array, dtype: torch.dtype) -> Any:
        """What a model of the user's own reads: a tensor `[N, ...]` for each leaf, in dicts and tuples as the space has them."""
        leaves = {path: one_hot(at(obs, path)) for path, one_hot in self._one_hots.items()}
        leaves |= {path: at(obs, path) for path in self._image_paths}
        if self._number_shapes:
            numbers, first = self._numbers(obs), 0
            for path, shape in self._number_shapes.items():
                end = first + math.prod(shape)
                leaves[path] = numbers[:, first:end].reshape(len(obs), *shape)
                first = end
        return _tree_of(self._space, {path: torch.tensor(leaf, dtype=dtype) for path, leaf in leaves.items()})

    def moments_of(self, obs: Array) -> dict[str, Any]:
        """Of the numbers of observations, where they are normalised."""
        return {} if self.obs_filter is None else {"obs_filter": Moments.of(self._raw_numbers(obs))}

    def _numbers(self, obs: Array) -> Array:
        numbers = self._raw_numbers(obs)
        return numbers if self.obs_filter is None else self.obs_filter.standardized(numbers)

    def _raw_numbers(self, obs: Array) -> Array:
        if self._is_one_column:
            return obs.reshape(len(obs), -1)
        return np.concatenate([at(obs, path).reshape(len(obs), -1) for path in self._number_shapes], axis=1)


def _is_image(leaf: gym.Space[Any]) -> bool:
    return isinstance(leaf, gym.spaces.Box) and len(leaf.shape) == 3


def _network_space(space: gym.Space[Any]) -> gym.Space[Any]:
    """The space as a model reads it: the Box of its zeros and ones for each choice."""
    if isinstance(space, gym.spaces.Dict):
        return gym.spaces.Dict([(name, _network_space(part)) for name, part in sorted(space.spaces.items())])
    if isinstance(space, gym.spaces.Tuple):
        return gym.spaces.Tuple([_network_space(part) for part in space.spaces])
    return OneHot(space).space if isinstance(space, _CHOICES) else space


def _tree_of(space: gym.Space[Any], leaves: Mapping[Path, Any], path: Path = ()) -> Any:
    """The values of leaves in dicts and tuples, as the space has them."""
    if isinstance(space, gym.spaces.Dict):
        return {name: _tree_of(part, leaves, (*path, name)) for name, part in sorted(space.spaces.items())}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_tree_of(part, leaves, (*path, str(place))) for place, part in enumerate(space.spaces))
    return leaves[path]
