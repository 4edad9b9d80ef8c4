"""Spaces as JSON, so that a policy can be saved with what it sees and does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from flowrl.errors import ConfigError

__all__ = ["space_from_json", "space_to_json"]


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A Box, Discrete, MultiDiscrete or MultiBinary as what JSON can hold; infinite bounds as texts.

    >>> space_to_json(gym.spaces.Discrete(3, start=1))
    {'space': 'Discrete', 'n': 3, 'start': 1}
    """
    if isinstance(space, gym.spaces.Discrete):
        return {"space": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"space": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist(), "dtype": str(space.dtype)}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"space": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, gym.spaces.Box):
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"space": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    raise ConfigError(f"space {space}: expected Box, Discrete, MultiDiscrete or MultiBinary")


def space_from_json(text: Mapping[str, Any]) -> gym.Space[Any]:
    """The space that `space_to_json` described.

    >>> space_from_json({"space": "Box", "shape": [2], "dtype": "float32", "low": "-inf", "high": 1.0})
    Box(-inf, 1.0, (2,), float32)
    """
    kind = text.get("space")
    if kind == "Discrete":
        return gym.spaces.Discrete(text["n"], start=text["start"])
    if kind == "MultiDiscrete":
        return gym.spaces.MultiDiscrete(np.array(text["nvec"]), start=np.array(text["start"]), dtype=np.dtype(text["dtype"]).type)
    if kind == "MultiBinary":
        return gym.spaces.MultiBinary(text["n"])
    if kind == "Box":
        dtype = np.dtype(text["dtype"])
        low, high = (
            np.broadcast_to(np.array(text[side], np.float64 if dtype.kind == "f" else dtype), text["shape"]) for side in ("low", "high")
        )
        return gym.spaces.Box(low.astype(dtype), high.astype(dtype), tuple(text["shape"]), dtype.type)
    raise ConfigError(f"space {kind!r}: expected 'Box', 'Discrete', 'MultiDiscrete' or 'MultiBinary'")


def _bound(bound: Any) -> Any:
    """One number where all are equal; infinities as "inf" and "-inf", which JSON numbers are not."""
    values = bound.ravel().tolist()
    return _finite(values[0] if len(set(values)) == 1 else bound.tolist())


def _finite(values: Any) -> Any:
    if isinstance(values, list):
        return [_finite(value) for value in values]
    return str(values) if values in (float("inf"), float("-inf")) else values
