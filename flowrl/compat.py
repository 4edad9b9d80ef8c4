"""RLlib's old spellings, so that plans written for its `rllib.execution` run as they are: change the import, nothing else.

    from flowrl.compat import *

Only names: what does the work is `flowrl.ops`, `flowrl.rollout`, `flowrl.replay` and `flowrl.learner`. What behaves otherwise than
there, and why, is in docs/migration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from flowrl.iter.handles import ActorHandle, create_colocated
from flowrl.iter.iterators import LocalIterator
from flowrl.learner.learner_thread import LearnerThread
from flowrl.metrics.context import get_metrics as _get_shared_metrics
from flowrl.metrics.names import NUM_STEPS_SAMPLED as STEPS_SAMPLED_COUNTER
from flowrl.metrics.names import NUM_STEPS_TRAINED as STEPS_TRAINED_COUNTER
from flowrl.ops import concurrency, replay, reporting, rollout, train
from flowrl.replay.actor import ReplayActor
from flowrl.rollout.worker_set import WorkerSet

__all__ = [
    "STEPS_SAMPLED_COUNTER",
    "STEPS_TRAINED_COUNTER",
    "Concurrently",
    "Dequeue",
    "Enqueue",
    "LearnerThread",
    "LocalIterator",
    "ParallelReplay",
    "ParallelRollouts",
    "Replay",
    "ReplayActor",
    "StandardMetricsReporting",
    "StoreToReplayActors",
    "StoreToReplayBuffer",
    "UpdateTargetNetwork",
    "UpdateWorkerWeights",
    "WorkerSet",
    "_get_shared_metrics",
    "create_colocated",
]

Concurrently = concurrency.Concurrently
Dequeue = concurrency.Dequeue
Enqueue = concurrency.Enqueue
Replay = replay.Replay
StandardMetricsReporting = reporting.StandardMetricsReporting
StoreToReplayBuffer = replay.StoreToReplayBuffer
UpdateTargetNetwork = train.UpdateTargetNetwork
UpdateWorkerWeights = train.UpdateWorkerWeights


def ParallelRollouts(
    workers: WorkerSet,
    mode: Literal["bulk_sync", "async", "raw"] = "bulk_sync",
    num_async: int | None = None,
    async_queue_depth: int = 1,
) -> Any:
    """`flowrl.ops.ParallelRollouts`; `async_queue_depth` is what `num_async` was called at first."""
    return rollout.ParallelRollouts(workers, mode=mode, num_async=async_queue_depth if num_async is None else num_async)


def StoreToReplayActors(replay_actors: Sequence[ActorHandle]) -> replay.StoreToReplayBuffer:
    """What `StoreToReplayBuffer(actors=)` was called at first."""
    return replay.StoreToReplayBuffer(actors=replay_actors)


def ParallelReplay(replay_actors: Sequence[ActorHandle], async_queue_depth: int = 4) -> LocalIterator[Any]:
    """What `Replay(actors=, num_async=)` was called at first."""
    return replay.Replay(actors=replay_actors, num_async=async_queue_depth)
