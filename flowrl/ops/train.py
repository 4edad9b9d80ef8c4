"""Operators that learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flowrl.batch import SampleBatch
from flowrl.errors import PlanError
from flowrl.iter.building import at_least
from flowrl.iter.naming import plan_line, short
from flowrl.metrics.context import get_metrics
from flowrl.metrics.names import LEARNER, NUM_STEPS_TRAINED, NUM_WEIGHT_SYNCS
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["TrainOneStep"]


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
        if not isinstance(self.workers, WorkerSet):
            raise PlanError(f"TrainOneStep({short(self.workers)}) at {line}: pass a WorkerSet")
        at_least(self.num_sgd_iter, 1, "num_sgd_iter", "TrainOneStep", line)
        at_least(self.sgd_minibatch_size, 0, "sgd_minibatch_size", "TrainOneStep", line)

    def __call__(self, batch: SampleBatch) -> tuple[SampleBatch, dict[str, Any]]:
        metrics = get_metrics()
        with metrics.timers["learn"] as timer:
            stats = self.workers.local_worker().learn_on_batch(batch, self.num_sgd_iter, self.sgd_minibatch_size)
            timer.push_units_processed(batch.count)
        metrics.counters[NUM_STEPS_TRAINED] += batch.count
        metrics.info[LEARNER] = report = {name: mean.value for name, mean in stats.items()}
        with metrics.timers["sync_weights"]:
            for worker, call in zip(self.workers.remote_workers(), self.workers.sync_weights()):
                metrics.run.tell(call, to=worker)
                metrics.counters[NUM_WEIGHT_SYNCS] += 1
        return batch, report
