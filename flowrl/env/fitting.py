"""What an env gives, into a column: in the shape and dtype of its space, or refused by the name of the leaf that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from flowrl.batch import Array
from flowrl.env.spaces import dtype_of, parts_of, shape_of

__all__ = ["HIGHEST", "Writer", "fitted", "number", "writer"]

HIGHEST = float(np.finfo(np.float32).max)
"""A reward at most this far from 0 is finite in float32."""
MEND = "mend the env or its observation_space"
Writer: TypeAlias = Callable[[int, Any], None]
"""Puts a value into a row of a column."""


def fitted(new_obs: Any, space: gym.Space[Any], remedy: str = MEND) -> Array:
    """One observation as a row of its space's columns, where that loses nothing but float precision; a choice that the space has."""
    column = np.zeros((1, *shape_of(space)), dtype_of(space))
    writer(space, column, remedy)(0, new_obs)
    row: Array = column[0, ...]
    return row


def writer(space: gym.Space[Any], column: Array, remedy: str = MEND, name: str = "observation") -> Writer:
    """What puts an env's values into rows of `column` `[N, ...]`; raises ValueError, naming the leaf, for one that is not of the space."""
    parts = parts_of(space)
    if parts is None:
        return _leaf_writer(space, column, remedy, name)
    is_tuple = isinstance(space, gym.spaces.Tuple)
    kind: Any = (tuple, list) if is_tuple else Mapping
    keys: Any = range(len(parts)) if is_tuple else list(parts)
    writers = [
        (key, writer(part, column[field], remedy, f"{name}[{key!r}]")) for key, (field, part) in zip(keys, parts.items(), strict=True)
    ]

    def write(row: int, value: Any) -> None:
        fits = isinstance(value, kind) and len(value) == len(writers) and (is_tuple or all(key in value for key in keys))
        if not fits:
            got = sorted(map(str, value)) if isinstance(value, Mapping) else f"{value!r:.200}"
            expected = f"a tuple of {len(writers)}" if is_tuple else f"a dict with the keys {list(keys)}"
            raise ValueError(f"{name} {got}: the space says {expected}, {remedy}")
        for key, put in writers:
            put(row, value[key])

    return write


def _leaf_writer(space: gym.Space[Any], column: Array, remedy: str, name: str) -> Writer:
    shape, dtype = column.shape[1:], column.dtype
    is_box, is_float = isinstance(space, gym.spaces.Box), dtype.kind == "f"

    def write(row: int, value: Any) -> None:
        if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
            value = _cast(value, shape, dtype, remedy, name)
        if is_float and not np.isfinite(value).all():
            raise ValueError(f"{name} {value!r:.200}: expected finite numbers (in {dtype}), {remedy}")
        if not is_box and not space.contains(value if shape else value[()]):
            raise ValueError(f"{name} {value!r:.200}: the space says {space}, {remedy}")
        column[row] = value

    return write


def _cast(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], remedy: str, name: str) -> Array:
    array = np.asarray(value)
    if array.shape != shape:
        raise ValueError(f"{name} of shape {array.shape}: the space says {shape}, {remedy}")
    are_whole = array.dtype.kind in "iu" and dtype.kind in "iu"  # then the values decide
    if not are_whole and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"{name} of dtype {array.dtype}: the space says {dtype}, {remedy}")
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if array.dtype.kind in "iu" and not np.array_equal(cast, array):
        raise ValueError(f"{name} {array!r:.200} does not fit into {dtype}: {remedy}")
    return cast


def number(reward: Any) -> float:
    """A reward as a float, if it is one finite number."""
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"reward {reward!r:.200}: expected one number, mend the env or wrap it")
    value = float(array.reshape(()))
    if not -HIGHEST <= value <= HIGHEST:
        raise ValueError(f"reward {reward!r}: expected a finite number (in float32), mend the env or wrap it")
    return value
