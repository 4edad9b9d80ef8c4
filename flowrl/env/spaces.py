"""What flowrl knows of spaces: which there are, how their values lie in a column, and how they are written as JSON.

A column of a Dict or a Tuple is one array whose dtype has a field for each part, as NumPy's structured arrays have them: `obs["image"]` is
a view of all rows' images. Fields of a Dict are in the order of its sorted keys, whatever the order in which the env names them; those of
a Tuple are called "0", "1" and so on. So nested values are sliced, stored, replayed and sent like any others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from flowrl.batch import Array
from flowrl.errors import ConfigError

__all__ = [
    "LEAVES",
    "Path",
    "at",
    "checked_space",
    "dtype_of",
    "for_env",
    "joined",
    "leaves_of",
    "parts_of",
    "shape_of",
    "space_from_json",
    "space_to_json",
]

LEAVES = (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary, gym.spaces.Box)
Path: TypeAlias = tuple[str, ...]
"""The names of fields that lead to a leaf; empty where the space itself is one."""


def parts_of(space: gym.Space[Any]) -> dict[str, gym.Space[Any]] | None:
    """The parts of a Dict, by sorted key, or of a Tuple, by place; None for a space that is a leaf.

    >>> parts_of(gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Discrete(3)]))
    {'0': Discrete(2), '1': Discrete(3)}
    """
    if isinstance(space, gym.spaces.Dict):
        return {name: space.spaces[name] for name in sorted(space.spaces)}
    if isinstance(space, gym.spaces.Tuple):
        return {str(place): part for place, part in enumerate(space.spaces)}
    return None


def leaves_of(space: gym.Space[Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The leaves of a space, each with the names that lead to it."""
    parts = parts_of(space)
    if parts is None:
        yield path, space
        return
    for name, part in parts.items():
        yield from leaves_of(part, (*path, name))


def checked_space(space: gym.Space[Any], what: str, remedy: str) -> Any:
    """The space, if it is a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these, nested; else ConfigError."""
    if isinstance(space, gym.spaces.Dict) and not all(isinstance(name, str) and name for name in space.spaces):
        raise ConfigError(f"{what} {space}: expected texts as keys, {remedy}")
    parts = parts_of(space)
    if parts is not None and not parts:
        raise ConfigError(f"{what} {space}: expected at least one part, {remedy}")
    if parts is None and not isinstance(space, LEAVES):
        raise ConfigError(f"{what} {space}: expected Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these, {remedy}")
    for part in (parts or {}).values():
        checked_space(part, what, remedy)
    return space


def dtype_of(space: gym.Space[Any]) -> np.dtype[Any]:
    """The dtype of a column of the space's values; for a Dict or Tuple with a field for each part.

    >>> dtype_of(gym.spaces.Dict({"b": gym.spaces.Discrete(2), "a": gym.spaces.Box(0, 1, (3,))})).names
    ('a', 'b')
    """
    parts = parts_of(space)
    if parts is None:
        dtype: np.dtype[Any] = np.dtype(space.dtype)
        return dtype
    return np.dtype([(name, dtype_of(part), shape_of(part)) for name, part in parts.items()], align=True)


def shape_of(space: gym.Space[Any]) -> tuple[int, ...]:
    """The shape of one value of a column; () for a Dict or Tuple, whose fields have shapes of their own."""
    return () if space.shape is None or parts_of(space) is not None else tuple(space.shape)


def at(column: Array, path: Path) -> Array:
    """A leaf of a column, as a view."""
    for name in path:
        column = column[name]
    return column


def joined(columns: Mapping[str, Array]) -> Array:
    """One column with a field for each of `columns` `[N, ...]`."""
    dtype = np.dtype([(name, column.dtype, column.shape[1:]) for name, column in columns.items()], align=True)
    made = np.empty(len(next(iter(columns.values()))), dtype)
    for name, column in columns.items():
        made[name] = column
    return made


def for_env(space: gym.Space[Any]) -> Callable[[Any], Any]:
    """What makes of one row of a column a value as an env takes it: an int for Discrete, an array, a dict, a tuple."""
    parts = parts_of(space)
    if parts is None:
        return int if isinstance(space, gym.spaces.Discrete) else np.array
    made = {name: for_env(part) for name, part in parts.items()}
    if isinstance(space, gym.spaces.Tuple):
        return lambda row: tuple(make(row[name]) for name, make in made.items())
    return lambda row: {name: make(row[name]) for name, make in made.items()}


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A space that flowrl knows as what JSON can hold; infinite bounds as texts.

    >>> space_to_json(gym.spaces.Discrete(3, start=1))
    {'space': 'Discrete', 'n': 3, 'start': 1}
    """
    if isinstance(space, gym.spaces.Dict):
        return {"space": "Dict", "spaces": {name: space_to_json(part) for name, part in space.spaces.items()}}
    if isinstance(space, gym.spaces.Tuple):
        return {"space": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
    if isinstance(space, gym.spaces.Discrete):
        return {"space": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"space": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist(), "dtype": str(space.dtype)}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"space": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, gym.spaces.Box):
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"space": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    raise ConfigError(f"space {space}: expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple")


def space_from_json(text: Mapping[str, Any]) -> gym.Space[Any]:
    """The space that `space_to_json` described.

    >>> space_from_json({"space": "Box", "shape": [2], "dtype": "float32", "low": "-inf", "high": 1.0})
    Box(-inf, 1.0, (2,), float32)
    """
    kind = text.get("space")
    if kind == "Dict":
        return gym.spaces.Dict([(name, space_from_json(part)) for name, part in text["spaces"].items()])
    if kind == "Tuple":
        return gym.spaces.Tuple([space_from_json(part) for part in text["spaces"]])
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
    raise ConfigError(f"space {kind!r}: expected 'Box', 'Discrete', 'MultiDiscrete', 'MultiBinary', 'Dict' or 'Tuple'")


def _bound(bound: Any) -> Any:
    """One number where all are equal; infinities as "inf" and "-inf", which JSON numbers are not."""
    values = bound.ravel().tolist()
    return _finite(values[0] if len(set(values)) == 1 else bound.tolist())


def _finite(values: Any) -> Any:
    if isinstance(values, list):
        return [_finite(value) for value in values]
    return str(values) if values in (float("inf"), float("-inf")) else values
