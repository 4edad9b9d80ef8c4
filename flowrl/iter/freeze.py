"""Read-only copies: what the serial engine hands out in place of what a process boundary would have copied.

Immutable values and objects that are read-only already (`__flowrl_frozen__`, arrays without a writable base) pass as they
are; arrays are copied once; everything else goes through pickle with its buffers out of band, exactly what Ray does.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import fields, is_dataclass
from typing import Any

import cloudpickle

__all__ = ["freeze", "lock"]

_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), type(...)})


def _array_type() -> type | None:
    numpy = sys.modules.get("numpy")
    return numpy.ndarray if numpy else None


def _freeze_array(array: Any) -> Any:
    owner = array
    while isinstance(owner, type(array)) and not owner.flags.writeable:
        if owner.base is None or isinstance(owner.base, bytes):
            return array
        owner = owner.base
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def freeze(value: Any) -> Any:
    """`value`, such that nobody can change what it shows: itself where that holds already, else a copy.

    >>> items = [1, 2]
    >>> copy = freeze(items)
    >>> items.append(3)
    >>> copy
    [1, 2]
    """
    kind = type(value)
    if kind in _ATOMS or getattr(kind, "__flowrl_frozen__", False):
        return value
    if kind is _array_type() and not value.dtype.hasobject:
        return _freeze_array(value)
    if kind is tuple:
        return tuple(freeze(part) for part in value)
    if kind is list:
        return [freeze(part) for part in value]
    if kind is dict:
        return {key: freeze(part) for key, part in value.items()}
    if hasattr(kind, "freeze_with"):
        return value.freeze_with(freeze)
    buffers: list[pickle.PickleBuffer] = []
    try:
        packed = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except Exception:
        buffers.clear()
        packed = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    copy = pickle.loads(packed, buffers=[bytes(buffer.raw()) for buffer in buffers])
    lock(copy)
    return copy


def lock(value: Any) -> None:
    """Make the arrays in `value`, a copy that is ours alone, read-only where they lie.

    Pickling does so for those that lie in one piece; a view of every second element, say, comes back writable.
    """
    kind = type(value)
    if kind in _ATOMS:
        return
    if kind is _array_type():
        value.flags.writeable = False
    elif isinstance(value, list | tuple):
        if not _ATOMS.issuperset(map(type, value)):
            for part in value:
                lock(part)
    elif kind is dict:
        for part in value.values():
            lock(part)
    elif is_dataclass(kind) and not getattr(kind, "__flowrl_frozen__", False):
        for field in fields(value):
            lock(getattr(value, field.name, None))
