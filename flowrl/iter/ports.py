"""The two ends of a queue as stages of a run. Neither ever waits: a full or empty queue is told to the run, which sleeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowrl.errors import QueueClosedError
from flowrl.iter.chain import StageObject
from flowrl.iter.queues import Port, queue_name
from flowrl.iter.signals import END, Signal, call_user, with_note

__all__ = ["DequeueStage", "PutStage"]

OVERDUE_S = 1.0
"""How long the news of a learner's death waits for what it gave before."""


class PutStage(StageObject):
    """`for_each(Enqueue(queue))`: an item that finds no room stays here until there is some."""

    def __init__(self, upstream: Any, port: Port, label: str) -> None:
        self.upstream, self.port, self.label = upstream, port, label
        self.held: list[Any] = []
        self.ended = False

    def pull(self) -> Any:
        if not self.held:
            x = self.upstream.pull()
            if x.__class__ is Signal:
                if x is END and not self.ended:
                    self.ended = True
                    self.port.writers -= 1
                return x
            self.num_in += 1
            self.sources = self.upstream.sources
            self.held.append(x)
        if not self.port.try_put(self.held[0]):
            return self.port.signal
        self.num_out += 1
        return self.held.pop()

    @property
    def num_held(self) -> int:
        return len(self.held)

    def why_blocked(self) -> str | None:
        if not self.held or not self.port.is_full:
            return None
        return f"{self.label} waits for room in {self.port!r}" + ("" if self.port.is_read else ", and whoever read it has ended")


class DequeueStage(StageObject):
    """`Dequeue(queue, check)`: its items; its end when every branch that writes it has ended and it is empty.

    `check` is asked when the queue is empty. False: `QueueClosedError` is raised, once; then the stream ends unless `check` is
    true again. A learner that has died comes before that: its own error is raised, each time, since nothing will come any more.
    """

    def __init__(self, port: Port, check: Callable[[], bool] | None, label: str) -> None:
        self.port, self.check, self.label = port, check, label
        self.told = self.ended = False

    def pull(self) -> Any:
        port = self.port
        found, x = port.try_get()
        if not found and port.worker is not None and port.worker.step():
            found, x = port.try_get()
        if not found:
            gone = self.check is not None and not call_user(self.check, self.label, "")
            signal = port.signal if port.may_be_written else END
            found, x = port.try_get()  # what was put between the look and these questions
        if found:
            self.num_out += 1
            return x
        if port.worker is not None:
            port.worker.raise_failure(self.label)
        if gone:
            return self._tell_once()
        self.told = False
        if signal is END and not self.ended:
            self.ended = True
            port.readers -= 1
        return signal

    def raise_overdue(self) -> None:
        """Raise what a learner has died of though this stage is not pulled, once what it gave before is read, or waits for too long."""
        worker = self.port.worker
        if worker is not None and (self.port.is_empty or worker.dead_s > OVERDUE_S):
            worker.raise_failure(self.label)

    def _tell_once(self) -> Signal:
        if self.told:
            return END
        self.told = True
        raise with_note(
            QueueClosedError(
                f"check() of {self.label} is false and {queue_name(self.port.queue)} is empty: whoever wrote to it has stopped"
            ),
            f"in {self.label}",
        )

    def why_blocked(self) -> str | None:
        return f"{self.label} waits for an item in {self.port!r}" if self.port.may_be_written and self.port.is_empty else None
