"""A learner beside the plan: it trains the local worker on the batches of a queue, in a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from flowrl.batch import Array, SampleBatch
from flowrl.errors import QueueClosedError
from flowrl.iter.queue_worker import QueueWorker
from flowrl.learner.devices import checked_devices
from flowrl.learner.statistics import by_row, reported
from flowrl.metrics.context import MetricsContext
from flowrl.metrics.names import LEARNER, NUM_STEPS_SAMPLED
from flowrl.metrics.values import Timer, Window
from flowrl.rollout.worker_set import LocalWorker

__all__ = ["LearnerThread", "Priorities", "priorities_of"]

QUEUE_SIZE = 16

Priorities: TypeAlias = dict[str, tuple[Array, Array]]
"""Policy id -> (`batch_indexes`, TD errors) of the rows of a replayed batch, each `[B]`."""


def priorities_of(batch: SampleBatch, td_errors: Array | None) -> Priorities:
    """What replay is told of a batch that was trained on; empty where it was not replayed, or has no TD errors."""
    return {} if td_errors is None or "batch_indexes" not in batch else {"default": (batch["batch_indexes"], td_errors)}


class LearnerThread(QueueWorker):
    """Trains the local worker on each batch that comes in by `inqueue`; what it says of it goes out by `outqueue`.

    >>> from flowrl.algorithms.dqn import DQNConfig
    >>> from flowrl.rollout.worker_set import WorkerSet
    >>> learner = LearnerThread(WorkerSet(DQNConfig(env="CartPole-v1")).local_worker())
    >>> learner.inqueue, learner.is_alive()  # a handle: nothing has started
    (Queue(maxsize=16), False)

    In: (who made the batch, batch), as `zip_with_source_actor()` gives it, or a batch. Out, one for one: (who made it, priorities,
    rows), where the priorities are those that `ReplayActor.update_priorities` takes. A plan that names one of its queues has it
    started with each of its runs; both queues hold 16 items. On the serial engine it has no thread: it takes a step where
    the plan dequeues.

    `weights_updated` becomes true with each step (who copies the weights sets it to false before), `stats` are the numbers of the last
    step, also `info["learner"]` of a result. `queue_timer` (waiting for a batch), `grad_timer` (learning; units: rows) and
    `overall_timer` are among its timers, `learner_queue_size` a window over the batches that wait. `devices` as in the config.
    """

    def __init__(self, local_worker: LocalWorker, devices: Sequence[str] | None = None) -> None:
        super().__init__(QUEUE_SIZE, QUEUE_SIZE)
        self.local_worker, self.devices = local_worker, devices
        self._begin_again()

    def _begin_again(self) -> None:
        self.weights_updated = False
        self.stats: dict[str, float] = {}
        self.queue_timer, self.grad_timer, self.overall_timer = Timer(), Timer(), Timer()
        self.learner_queue_size = Window()
        self._metrics: MetricsContext | None = None

    def start(self) -> None:
        """Nothing to do: every run that names its queues starts it. For plans that were written for RLlib."""

    def work(self, item: Any) -> tuple[Any, Priorities, int]:
        """Train on one batch."""
        source, batch = item if isinstance(item, tuple) and len(item) == 2 else (None, item)
        if not isinstance(batch, SampleBatch):
            raise TypeError(
                f"a learner was given {type(batch).__name__}: expected a SampleBatch, or (who made it, batch), as "
                "zip_with_source_actor() gives it"
            )
        self.learner_queue_size.push(self.inqueue.qsize())
        metrics = self._metrics
        sampled = int(metrics.counters[NUM_STEPS_SAMPLED]) if metrics is not None else None
        with self.grad_timer as timer:
            stats = self.local_worker.learn_on_batch(batch, num_steps_sampled=sampled, publish=True)
            timer.push_units_processed(batch.count)
        if self.is_left:
            raise QueueClosedError("the run that this batch was learned for is over")
        self.stats = reported(stats)
        if metrics is not None:
            metrics.info[LEARNER] = self.stats
        self.weights_updated = True
        return source, priorities_of(batch, by_row(stats).get("td_errors")), batch.count

    # --- what a run asks of a handle ------------------------------------------------------------------------------

    def begin(self, engine: Any) -> None:
        """The workers, for the local one among them."""
        self._begin_again()
        self.local_worker.owner.retain(engine)
        worker = self.local_worker.live
        self._devices_before = worker.devices
        if self.devices is not None:
            worker.devices = checked_devices(self.devices)
        worker.publish()

    def finish(self, engine: Any) -> None:
        """The workers are the run's own again."""
        self.local_worker.live.devices = self._devices_before
        self.local_worker.owner.release()

    def join_run(self, run: Any) -> None:
        """Its timers are among the run's, its numbers in `info["learner"]`."""
        self._metrics = run.metrics
        run.metrics.timers |= {
            "learner_dequeue": self.queue_timer,
            "learner_grad": self.grad_timer,
            "learner_overall": self.overall_timer,
        }

    def state_elsewhere(self) -> dict[str, Any]:
        return {**super().state_elsewhere(), "local_worker": self.local_worker, "devices": self.devices}

    def _one_item(self, inqueue: Any, outqueue: Any) -> None:
        with self.overall_timer:
            super()._one_item(inqueue, outqueue)

    def _next_item(self, inqueue: Any) -> Any:
        with self.queue_timer:
            return super()._next_item(inqueue)
