"""Operators around sampling: where fragments come from, and how they become train batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np

from flowrl.batch import SampleBatch
from flowrl.errors import PlanError
from flowrl.iter.building import at_least
from flowrl.iter.iterators import LocalIterator, ParallelIterator
from flowrl.iter.naming import plan_line, short
from flowrl.iter.nodes import Actors, LocalSource
from flowrl.metrics.context import get_metrics
from flowrl.metrics.names import EPISODES, NUM_EPISODES, NUM_STEPS_SAMPLED
from flowrl.metrics.values import Log
from flowrl.ops.train import BatchGradient, ComputeGradients
from flowrl.rollout.worker import Fragments
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["AsyncGradients", "ConcatBatches", "CountRollouts", "LocalRollouts", "ParallelRollouts", "StandardizeFields"]


@overload
def ParallelRollouts(workers: WorkerSet, mode: Literal["raw"], num_async: int = 1) -> ParallelIterator[SampleBatch]: ...
@overload
def ParallelRollouts(workers: WorkerSet, mode: Literal["bulk_sync", "async"] = ..., num_async: int = 1) -> LocalIterator[SampleBatch]: ...
def ParallelRollouts(
    workers: WorkerSet, mode: Literal["bulk_sync", "async", "raw"] = "bulk_sync", num_async: int = 1
) -> LocalIterator[SampleBatch] | ParallelIterator[SampleBatch]:
    """Fragments of experience from all workers.

    "bulk_sync": one batch a round, the fragments of all workers in worker order; a barrier, so that every row was made with
    the weights of the round before. "async": fragments as they are ready, at most `num_async` in flight a worker. "raw":
    the `ParallelIterator`, to add stages in the workers; who uses it counts the steps. Without remote workers the local
    worker samples in the driver, and "raw" is refused.

    Adds to `num_steps_sampled` and `num_episodes`, except in mode "raw".
    """
    line = plan_line()
    if mode not in ("bulk_sync", "async", "raw"):
        raise PlanError(f"ParallelRollouts(mode={short(mode)}) at {line}: mode is 'bulk_sync', 'async' or 'raw'")
    if not isinstance(workers, WorkerSet):
        raise PlanError(f"ParallelRollouts({short(workers)}) at {line}: pass a WorkerSet")
    remote = workers.remote_workers()
    if not remote:
        if mode == "raw":
            raise PlanError(f"ParallelRollouts(mode='raw') at {line}: there are no remote workers, so there are no shards: set num_workers")
        source = LocalSource(line=line, iterable=LocalRollouts(workers), name="", operator="ParallelRollouts")
        return LocalIterator[SampleBatch](source).for_each(CountRollouts())
    shards: ParallelIterator[SampleBatch] = ParallelIterator(Actors(line=line, actors=tuple(remote), name="", operator="ParallelRollouts"))
    if mode == "raw":
        return shards
    if mode == "async":
        return shards.gather_async(num_async=num_async).for_each(CountRollouts())
    return shards.batch_across_shards().for_each(CountRollouts())


def AsyncGradients(workers: WorkerSet) -> LocalIterator[BatchGradient]:
    """The gradients that the workers compute of their own fragments, as they are ready; one in flight a worker.

    A worker makes its next gradient when the stream is pulled again: with the weights that it was sent for the last one. Without
    remote workers the local worker samples and computes in the driver. Adds to `num_steps_sampled` and `num_episodes`; the timer
    "compute_gradients".
    """
    if not isinstance(workers, WorkerSet):
        raise PlanError(f"AsyncGradients({short(workers)}) at {plan_line()}: pass a WorkerSet")
    if not workers.remote_workers():
        return ParallelRollouts(workers, mode="async").for_each(ComputeGradients(workers))
    fragments = ParallelRollouts(workers, mode="raw").for_each(CountRollouts())
    return fragments.for_each(ComputeGradients(workers)).gather_async(num_async=1)


@dataclass
class LocalRollouts:
    """The local worker's fragments, for ever: a source in the driver."""

    workers: WorkerSet

    def __call__(self) -> Fragments:
        return Fragments(lambda: self.workers.local_worker().sample(int(get_metrics().counters[NUM_STEPS_SAMPLED])))


class CountRollouts:
    """Counts what was sampled; a round of fragments becomes one batch. For `.for_each()`.

    Adds to `num_steps_sampled` and `num_episodes`, and keeps the finished episodes for the report.
    """

    def __call__(self, fragments: SampleBatch | list[SampleBatch]) -> SampleBatch:
        batch = SampleBatch.concat(fragments) if isinstance(fragments, list) else fragments
        metrics = get_metrics()
        metrics.counters[NUM_STEPS_SAMPLED] += batch.count
        metrics.counters[NUM_EPISODES] += len(batch.episodes)
        if batch.episodes:
            metrics.observe(EPISODES, Log(list(batch.episodes)))
        return batch


@dataclass
class ConcatBatches:
    """Joins batches until there are at least `min_batch_size` rows. For `.combine()`.

    The rows of a train batch are all rows since the one before, none lost, none twice; it overshoots by less than the last
    batch. What is left when a finite stream ends is not enough for a batch and does not come out.
    """

    min_batch_size: int
    merges_items = True

    parts: list[SampleBatch] = field(default_factory=list, init=False, repr=False)
    count: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        at_least(self.min_batch_size, 1, "min_batch_size", "ConcatBatches", plan_line())

    def __call__(self, batch: SampleBatch) -> list[SampleBatch]:
        self.parts.append(batch)
        self.count += batch.count
        if self.count < self.min_batch_size:
            return []
        joined = SampleBatch.concat(self.parts)
        self.parts, self.count = [], 0
        return [joined]


@dataclass
class StandardizeFields:
    """Each of these columns to mean 0 and standard deviation 1 over the batch, in a new batch. For `.for_each()`.

    (x - mean) / max(1e-4, std), in float64, as the column's dtype; the batch that came in is left as it is.
    """

    fields: Sequence[str]

    def __post_init__(self) -> None:
        if isinstance(self.fields, str) or not all(isinstance(name, str) for name in self.fields):
            raise PlanError(f"StandardizeFields({short(self.fields)}) at {plan_line()}: pass a list of column names")

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        return batch.with_columns(**{name: _standardized(batch[name]) for name in self.fields})


def _standardized(column: Any) -> Any:
    values = column.astype(np.float64)
    return ((values - values.mean()) / max(1e-4, float(values.std()))).astype(column.dtype)
