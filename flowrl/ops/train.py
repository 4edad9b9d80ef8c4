"""Operators that learn."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np

from flowrl.batch import Array, SampleBatch
from flowrl.errors import PlanError
from flowrl.iter.building import at_least
from flowrl.iter.naming import plan_line, short
from flowrl.learner.learner_thread import LearnerThread
from flowrl.learner.statistics import by_row, reported
from flowrl.metrics.context import get_metrics
from flowrl.metrics.names import LEARNER, NUM_STEPS_SAMPLED, NUM_STEPS_TRAINED, NUM_TARGET_UPDATES, NUM_WEIGHT_SYNCS
from flowrl.rollout.worker import RolloutWorker
from flowrl.rollout.worker_set import WorkerHandle, WorkerSet

__all__ = [
    "ApplyGradients",
    "AverageGradients",
    "BatchGradient",
    "ComputeGradients",
    "TrainOneStep",
    "UpdateTargetNetwork",
    "UpdateWorkerWeights",
]


class BatchGradient(NamedTuple):
    """The gradient of a loss that is a mean over `num_rows` rows, and the values that merge which came with it."""

    gradient: tuple[Mapping[str, Array], Mapping[str, Any]]
    """The gradient by weight name, and its `info`: as `RolloutWorker.compute_gradients` gives them."""
    num_rows: int


@dataclass
class TrainOneStep:
    """Trains the local worker on each batch, then sends its weights to all remote workers. For `.for_each()`; gives (batch, statistics).

    `num_sgd_iter` passes over shuffled minibatches of `sgd_minibatch_size` rows, the last one shorter (0: the whole batch).
    A worker has the new weights before it makes what it is asked for afterwards; where a worker refuses them, the run
    raises that. Statistics with one value a row (`td_errors`) become columns of the batch.

    Adds to `num_steps_trained` (rows, once whatever the passes) and `num_weight_syncs`; the timers "learn" (units: rows)
    and "sync_weights"; `info["learner"]`.
    """

    workers: WorkerSet
    num_sgd_iter: int = 1
    sgd_minibatch_size: int = 0
    sends = "weights"

    def __post_init__(self) -> None:
        line = plan_line()
        _check_workers(self.workers, "TrainOneStep", line)
        self.label = f"TrainOneStep at {line}"
        at_least(self.num_sgd_iter, 1, "num_sgd_iter", "TrainOneStep", line)
        at_least(self.sgd_minibatch_size, 0, "sgd_minibatch_size", "TrainOneStep", line)

    def __call__(self, batch: SampleBatch) -> tuple[SampleBatch, dict[str, Any]]:
        metrics = get_metrics()
        sampled = int(metrics.counters[NUM_STEPS_SAMPLED])
        try:
            with metrics.timers["learn"] as timer:
                stats = self.workers.local_worker().learn_on_batch(batch, self.num_sgd_iter, self.sgd_minibatch_size, sampled)
                timer.push_units_processed(batch.count)
            report = _report(stats, batch.count)
            rows = by_row(stats)
        finally:
            _send_weights(self.workers, self.label)  # also after an error in the middle: all workers have what the learner has
        return batch.with_columns(**rows) if rows else batch, report


@dataclass
class ComputeGradients:
    """The gradient of the loss on a batch, as a `BatchGradient`; of a list of batches, a list. For `.for_each()`.

    The local worker's loss in the driver; in the shards of `ParallelRollouts(workers, mode="raw")` each worker's own, with the
    weights that it has. The policy stays as it is until `ApplyGradients`. The timer "compute_gradients" (units: rows).
    """

    workers: WorkerSet
    worker: RolloutWorker | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_workers(self.workers, "ComputeGradients", plan_line())

    def bind_to_actor(self, actor: Any) -> None:
        """It is in a shard, whose worker this is."""
        self.worker = actor

    @overload
    def __call__(self, batch: SampleBatch) -> BatchGradient: ...
    @overload
    def __call__(self, batch: Sequence[SampleBatch]) -> list[BatchGradient]: ...
    def __call__(self, batch: SampleBatch | Sequence[SampleBatch]) -> BatchGradient | list[BatchGradient]:
        return self._of(batch) if isinstance(batch, SampleBatch) else [self._of(part) for part in batch]

    def _of(self, batch: SampleBatch) -> BatchGradient:
        metrics = get_metrics()
        with metrics.timers["compute_gradients"] as timer:
            if self.worker is not None:  # it heard with its weights how far the run is
                gradient = self.worker.compute_gradients(batch)
            else:
                gradient = self.workers.local_worker().compute_gradients(batch, int(metrics.counters[NUM_STEPS_SAMPLED]))
            timer.push_units_processed(batch.count)
        return BatchGradient(gradient, batch.count)


@dataclass
class AverageGradients:
    """A list of `BatchGradient`s as one: that of all their rows together. For `.for_each()`.

        g = sum_i n_i g_i / sum_i n_i

    since each loss is a mean over its n_i rows. Sums in float64, in the gradients' own dtype.
    """

    def __call__(self, gradients: Sequence[BatchGradient] | Any) -> BatchGradient:
        if not gradients:
            raise ValueError("no gradients to average: give at least one")
        num_rows = sum(part.num_rows for part in gradients)
        average = {
            name: _average([(part.gradient[0][name], part.num_rows / num_rows) for part in gradients]) for name in gradients[0].gradient[0]
        }
        return BatchGradient((average, _merged([part.gradient[1] for part in gradients])), num_rows)


@dataclass
class ApplyGradients:
    """One step of the local worker's optimizer along each `BatchGradient`, then its weights to remote workers. For `.for_each()`.

    To all of them; with `update_all=False` to the one whose gradient it was, and items are (worker, `BatchGradient`) then, as
    `zip_with_source_actor()` gives them: that worker has the new weights before it makes its next gradient, the others go on with
    what they have (Mnih et al., 2016). Gives (the item, statistics). Adds to `num_steps_trained` and `num_weight_syncs`; the timers
    "apply_gradients" (units: rows) and "sync_weights"; `info["learner"]`.
    """

    workers: WorkerSet
    update_all: bool = True
    sends = "weights"

    def __post_init__(self) -> None:
        line = plan_line()
        _check_workers(self.workers, "ApplyGradients", line)
        self.label = f"ApplyGradients at {line}"

    def __call__(self, item: BatchGradient | tuple[WorkerHandle, BatchGradient]) -> tuple[Any, dict[str, Any]]:
        source, part = (None, item) if isinstance(item, BatchGradient) else item
        if source is None and not self.update_all and self.workers.remote_workers():
            raise ValueError(
                "ApplyGradients(update_all=False) was given a gradient without the worker that made it: put .zip_with_source_actor() "
                "before it"
            )
        metrics = get_metrics()
        (gradient, info), num_rows = part
        try:
            with metrics.timers["apply_gradients"] as timer:
                stats = self.workers.local_worker().apply_gradients(gradient, info, int(metrics.counters[NUM_STEPS_SAMPLED]))
                timer.push_units_processed(num_rows)
            report = _report({**info, **stats}, num_rows)
        finally:
            _send_weights(self.workers, self.label, None if self.update_all or source is None else [source])
        return item, report


@dataclass
class UpdateTargetNetwork:
    """Hands each item on; the target network takes over what is trained, each `target_update_freq` steps. For `.for_each()`.

    Sampled env steps, or rows trained on with `by_steps_trained`; counted by this operator alone. Where a learner thread trains, it falls
    between two of its steps. Adds to `num_target_updates`.
    """

    workers: WorkerSet
    target_update_freq: int
    by_steps_trained: bool = False

    last_steps: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        line = plan_line()
        _check_workers(self.workers, "UpdateTargetNetwork", line)
        at_least(self.target_update_freq, 1, "target_update_freq", "UpdateTargetNetwork", line)

    def __call__(self, item: Any) -> Any:
        counters = get_metrics().counters
        steps = int(counters[NUM_STEPS_TRAINED if self.by_steps_trained else NUM_STEPS_SAMPLED])
        if steps - self.last_steps >= self.target_update_freq:
            self.workers.local_worker().update_target()
            self.last_steps = steps
            counters[NUM_TARGET_UPDATES] += 1
        return item


@dataclass
class UpdateWorkerWeights:
    """Sends a learner's weights to the worker of each (worker, batch), each `max_weight_sync_delay` steps of its own. For `.for_each()`.

    The newest weights, copied out of the local worker only where they have changed. Gives the item. Adds to `num_weight_syncs`; the
    timer "sync_weights".
    """

    learner_thread: LearnerThread
    workers: WorkerSet
    max_weight_sync_delay: int
    sends = "weights"

    steps_since_update: Counter[WorkerHandle] = field(default_factory=Counter, init=False, repr=False)
    newest: tuple[Any, int] | None = field(default=None, init=False, repr=False)
    """The weights, as the engine shares them, and their version."""
    num_changes: int = field(default=0, init=False, repr=False)
    """Of the local worker, when they were copied: who else may change its weights loads some, or edits them."""

    def __post_init__(self) -> None:
        line = plan_line()
        _check_workers(self.workers, "UpdateWorkerWeights", line)
        self.label = f"UpdateWorkerWeights at {line}"
        if not isinstance(self.learner_thread, LearnerThread):
            raise PlanError(f"UpdateWorkerWeights({short(self.learner_thread)}) at {line}: pass a LearnerThread")
        at_least(self.max_weight_sync_delay, 0, "max_weight_sync_delay", "UpdateWorkerWeights", line)

    def __call__(self, item: tuple[WorkerHandle, SampleBatch]) -> tuple[WorkerHandle, SampleBatch]:
        worker, batch = item
        self.steps_since_update[worker] += batch.count
        if self.steps_since_update[worker] >= self.max_weight_sync_delay:
            self.steps_since_update[worker] = 0
            self._send(worker)
        return item

    def _send(self, worker: WorkerHandle) -> None:
        metrics, learner = get_metrics(), self.learner_thread
        with metrics.timers["sync_weights"]:
            local = self.workers.local_worker()
            if self.newest is None or self.num_changes != local.num_changes:
                learner.weights_updated, self.num_changes = False, local.num_changes  # first: a step meanwhile is for the next one
                weights, version = local.get_versioned_weights()
                self.newest = self.workers.engine.share(weights), version
            call = worker.set_weights.remote(*self.newest, int(metrics.counters[NUM_STEPS_SAMPLED]))
            metrics.run.tell(call, to=worker, by=self.label)
        metrics.counters[NUM_WEIGHT_SYNCS] += 1


def _average(weighted: Sequence[tuple[Array, float]]) -> Array:
    total = np.sum([array.astype(np.float64) * weight for array, weight in weighted], axis=0)
    average: Array = total.astype(weighted[0][0].dtype)
    return average


def _check_workers(workers: Any, operator: str, line: str) -> None:
    if not isinstance(workers, WorkerSet):
        raise PlanError(f"{operator}({short(workers)}) at {line}: pass a WorkerSet")


def _report(stats: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Count the rows; the statistics become `info["learner"]`."""
    metrics = get_metrics()
    metrics.counters[NUM_STEPS_TRAINED] += count
    metrics.info[LEARNER] = report = reported(stats)
    return report


def _send_weights(workers: WorkerSet, by: str, to: Sequence[WorkerHandle] | None = None) -> None:
    metrics = get_metrics()
    receivers = workers.remote_workers() if to is None else to
    with metrics.timers["sync_weights"]:
        for worker, call in zip(receivers, workers.sync_weights(receivers, int(metrics.counters[NUM_STEPS_SAMPLED]))):
            metrics.run.tell(call, to=worker, by=by)
            metrics.counters[NUM_WEIGHT_SYNCS] += 1


def _merged(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for info in infos:
        for name, value in info.items():
            if name in merged:
                merged[name].merge(value)
            else:
                merged[name] = copy.copy(value)
    return merged
