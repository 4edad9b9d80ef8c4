"""Operators: small callables to put into a plan. Each is loaded when it is first used, so that a plan pays for what it has.

>>> from flowrl.ops import Concurrently
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowrl.ops.concurrency import Concurrently, Dequeue, Enqueue

_MODULE_OF = {
    "Concurrently": "concurrency",
    "Dequeue": "concurrency",
    "Enqueue": "concurrency",
}

__all__ = ["Concurrently", "Dequeue", "Enqueue"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
