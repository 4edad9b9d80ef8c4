"""Operators: small callables to put into a plan. Each is loaded when it is first used, so that a plan pays for what it has.

>>> from flowrl.ops import Concurrently
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowrl.ops.concurrency import Concurrently, Dequeue, Enqueue
    from flowrl.ops.replay import Replay, StoreToReplayBuffer, UpdatePriorities
    from flowrl.ops.reporting import CollectMetrics, OncePerTimeInterval, OncePerTimestepsElapsed, StandardMetricsReporting
    from flowrl.ops.rollout import AsyncGradients, ConcatBatches, CountRollouts, ParallelRollouts, StandardizeFields
    from flowrl.ops.train import (
        ApplyGradients,
        AverageGradients,
        ComputeGradients,
        TrainOneStep,
        UpdateTargetNetwork,
        UpdateWorkerWeights,
    )

_MODULE_OF = {
    "ApplyGradients": "train",
    "AsyncGradients": "rollout",
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
    "Replay": "replay",
    "StandardMetricsReporting": "reporting",
    "StandardizeFields": "rollout",
    "StoreToReplayBuffer": "replay",
    "TrainOneStep": "train",
    "UpdatePriorities": "replay",
    "UpdateTargetNetwork": "train",
    "UpdateWorkerWeights": "train",
}

__all__ = [
    "ApplyGradients",
    "AsyncGradients",
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
    "Replay",
    "StandardMetricsReporting",
    "StandardizeFields",
    "StoreToReplayBuffer",
    "TrainOneStep",
    "UpdatePriorities",
    "UpdateTargetNetwork",
    "UpdateWorkerWeights",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
