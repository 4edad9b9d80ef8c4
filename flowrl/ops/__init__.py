"""Operators: small callables to put into a plan. Each is loaded when it is first used, so that a plan pays for what it has.

>>> from flowrl.ops import Concurrently
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowrl.ops.concurrency import Concurrently, Dequeue, Enqueue
    from flowrl.ops.reporting import CollectMetrics, OncePerTimeInterval, OncePerTimestepsElapsed, StandardMetricsReporting
    from flowrl.ops.rollout import ConcatBatches, CountRollouts, ParallelRollouts, StandardizeFields
    from flowrl.ops.train import ApplyGradients, AverageGradients, ComputeGradients, TrainOneStep

_MODULE_OF = {
    "ApplyGradients": "train",
    "AverageGradients": "train",
    "CollectMetrics": "reporting",
    "ComputeGradients": "train",
    "ConcatBatches": "rollout",
    "Concurrently": "concurrency",
    "CountRollouts": "rollout",
    "Dequeue": "concurrency",
    "Enqueue": "concurrency",
    "OncePerTimeInterval": "reporting",
    "OncePerTimestepsElapsed": "reporting",
    "ParallelRollouts": "rollout",
    "StandardMetricsReporting": "reporting",
    "StandardizeFields": "rollout",
    "TrainOneStep": "train",
}

__all__ = [
    "ApplyGradients",
    "AverageGradients",
    "CollectMetrics",
    "ComputeGradients",
    "ConcatBatches",
    "Concurrently",
    "CountRollouts",
    "Dequeue",
    "Enqueue",
    "OncePerTimeInterval",
    "OncePerTimestepsElapsed",
    "ParallelRollouts",
    "StandardMetricsReporting",
    "StandardizeFields",
    "TrainOneStep",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
