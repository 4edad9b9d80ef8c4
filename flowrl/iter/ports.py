"""The two ends of a queue as stages of a run. Neither ever waits: a full or empty queue is told to the run, which sleeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowrl.errors import QueueClosedError
from flowrl.iter.chain import StageObject
from flowrl.iter.queues import Port, queue_name
from flowrl.iter.signals import END, Signal, call_user, with_note

__all__ = ["DequeueStage", "PutStage"]


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
        return f"{self.label} waits for room in {self.port!r}" + ("" if self.port.readers else ", and whoever read it has ended")


class DequeueStage(StageObject):
    """`Dequeue(queue, check)`: its items; its end when every branch that writes it has ended and it is empty.

    `check` is asked when the queue is empty. False: what the writer died of is raised, else `QueueClosedError`; once,
    then the stream ends unless `check` is true again.
    """

    def __init__(self, port: Port, check: Callable[[], bool] | None, label: str) -> None:
        self.port, self.check, self.label = port, check, label
        self.told = self.ended = False

    def pull(self) -> Any:
        found, x = self.port.try_get()
        if found:
            self.num_out += 1
            return x
        if self.check is not None and not call_user(self.check, self.label, ""):
            found, x = self.port.try_get()  # what was put between the look and the check
            if found:
                self.num_out += 1
                return x
            if self.told:
                return END
            self.told = True
            raise with_note(
                QueueClosedError(
                    f"check() of {self.label} is false and {queue_name(self.port.queue)} is empty: whoever wrote to it has stopped"
                ),
                f"in {self.label}",
            )
        self.told = False
        if self.port.outside or self.port.writers > 0:
            return self.port.signal
        if not self.ended:
            self.ended = True
            self.port.readers -= 1
        return END

    def why_blocked(self) -> str | None:
        return f"{self.label} waits for an item in {self.port!r}" if self.port.writers > 0 and self.port.is_empty else None
