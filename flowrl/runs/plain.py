"""Results as files can hold them: JSON knows no NaN, no numpy and no tuples; TensorBoard only numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["plain", "scalars"]


def plain(value: Any) -> Any:
    """A value as strict JSON has it: null in place of NaN and infinity, numpy scalars as numbers, what JSON lacks as text.

    >>> import numpy as np
    >>> plain({"mean": float("nan"), "steps": np.int64(3), "shape": (2, np.float32(0.5)), 7: {"a"}})
    {'mean': None, 'steps': 3, 'shape': [2, 0.5], '7': ['a']}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # numpy's scalars and arrays, torch's tensors
        return plain(value.tolist())
    return str(value)


def scalars(values: Mapping[Any, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Every finite number in nested results, by its path.

    >>> list(scalars({"steps": 3, "info": {"learner": {"kl": 0.25, "loss": float("nan"), "name": "x"}}}))
    [('steps', 3.0), ('info/learner/kl', 0.25)]
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{path}{name}/")
            continue
        number = plain(value)
        if isinstance(number, bool | int | float):
            yield f"{path}{name}", float(number)
