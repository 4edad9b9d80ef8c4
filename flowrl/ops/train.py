"""Operators that learn."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flowrl.batch import Array, SampleBatch
from flowrl.errors import PlanError
from flowrl.iter.building import at_least
from flowrl.iter.naming import plan_line, short
from flowrl.metrics.context import get_metrics
from flowrl.metrics.names import LEARNER, NUM_STEPS_SAMPLED, NUM_STEPS_TRAINED, NUM_WEIGHT_SYNCS
from flowrl.policy.normalizer import Moments
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["ApplyGradients", "AverageGradients", "BatchGradient", "ComputeGradients", "TrainOneStep"]


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
    raises that.

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
        finally:
            _send_weights(self.workers)  # also after an error in the middle: all workers have what the learner has
        return batch, report


@dataclass
class ComputeGradients:
    """The gradient of the local worker's loss on a batch, as a `BatchGradient`; of a list of batches, a list. For `.for_each()`.

    The policy stays as it is until `ApplyGradients`. The timer "compute_gradients" (units: rows).
    """

    workers: WorkerSet

    def __post_init__(self) -> None:
        _check_workers(self.workers, "ComputeGradients", plan_line())

    def __call__(self, batch: SampleBatch | Sequence[SampleBatch]) -> BatchGradient | list[BatchGradient]:
        return self._of(batch) if isinstance(batch, SampleBatch) else [self._of(part) for part in batch]

    def _of(self, batch: SampleBatch) -> BatchGradient:
        with get_metrics().timers["compute_gradients"] as timer:
            sampled = int(get_metrics().counters[NUM_STEPS_SAMPLED])
            gradient = self.workers.local_worker().compute_gradients(batch, sampled)
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
    """One step of the local worker's optimizer along each `BatchGradient`, then its weights to all remote workers. For `.for_each()`.

    Gives (the `BatchGradient`, statistics). Adds to `num_steps_trained` and `num_weight_syncs`; the timers "apply_gradients" (units:
    rows) and "sync_weights"; `info["learner"]`.
    """

    workers: WorkerSet
    sends = "weights"

    def __post_init__(self) -> None:
        _check_workers(self.workers, "ApplyGradients", plan_line())

    def __call__(self, part: BatchGradient) -> tuple[BatchGradient, dict[str, Any]]:
        metrics = get_metrics()
        (gradient, info), num_rows = part
        try:
            with metrics.timers["apply_gradients"] as timer:
                stats = self.workers.local_worker().apply_gradients(gradient, info, int(metrics.counters[NUM_STEPS_SAMPLED]))
                timer.push_units_processed(num_rows)
            report = _report({**info, **stats}, num_rows)
        finally:
            _send_weights(self.workers)
        return part, report


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
    metrics.info[LEARNER] = report = {name: mean.value for name, mean in stats.items() if not isinstance(mean, Moments)}
    return report


def _send_weights(workers: WorkerSet) -> None:
    metrics = get_metrics()
    with metrics.timers["sync_weights"]:
        for worker, call in zip(workers.remote_workers(), workers.sync_weights()):
            metrics.run.tell(call, to=worker)
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
