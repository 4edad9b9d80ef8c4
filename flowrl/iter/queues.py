"""Bounded queues between branches of a plan, or between a plan and a thread; and what a run sees of them.

`Queue` is flowrl's own: a handle, opened by the run, that wakes the run when a thread puts or gets. A bounded
`queue.Queue` works too; since it has no way to call anybody, a run that has nothing else to do parks one thread on it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from flowrl.errors import PlanError
from flowrl.iter.handles import Handle
from flowrl.iter.signals import PENDING, Signal

__all__ = ["Port", "Queue", "is_queue", "max_size", "queue_name"]


class _Contents:
    """What is behind an open `Queue`."""

    def __init__(self, maxsize: int) -> None:
        self.items: deque[Any] = deque()
        self.maxsize = maxsize
        self.changed = threading.Condition()
        self.listeners: list[Callable[[], None]] = []

    def move(self, ready: Callable[[], bool], act: Callable[[], Any], timeout_s: float | None) -> tuple[bool, Any]:
        """Wait until `ready`, then `act`; whether that came about in time, and what `act` gave."""
        with self.changed:
            if not ready() and (timeout_s == 0 or not self.changed.wait_for(ready, timeout_s)):
                return False, None
            value = act()
            self.changed.notify_all()
        for wake in tuple(self.listeners):
            wake()
        return True, value


class Queue(Handle):
    """A bounded queue between two branches of a plan (`Enqueue`, `Dequeue`), or between a plan and a learner.

    >>> q = Queue(maxsize=2)
    >>> with q.open():
    ...     q.put("a")
    ...     q.get(), q.qsize()
    ('a', 0)

    A full queue blocks who puts, an empty one who gets; nothing is dropped. Each run begins with it empty, unless the
    user opened it: then its contents stay from plan to plan, and a thread of the user's may be at its other end.
    """

    def __init__(self, maxsize: int) -> None:
        if not isinstance(maxsize, int) or isinstance(maxsize, bool) or maxsize < 1:
            raise PlanError(f"Queue(maxsize={maxsize!r}) has no bound: give the most items that it may hold, at least 1")
        super().__init__()
        self.maxsize = maxsize

    other_end: Handle | None = None
    """The learner at its other end, if there is one."""

    def start_live(self, engine: Any) -> _Contents:
        return _Contents(self.maxsize)

    def state_elsewhere(self) -> dict[str, Any]:
        return {**super().state_elsewhere(), "maxsize": self.maxsize}

    def put(self, item: Any, timeout: float | None = None) -> None:
        """Put one item, waiting for room, for at most `timeout` seconds; `queue.Full` then."""
        live: _Contents = self.live
        done, _ = live.move(lambda: len(live.items) < live.maxsize, lambda: live.items.append(item), timeout)
        if not done:
            raise queue.Full(f"{self!r} was full for {timeout} s")

    def get(self, timeout: float | None = None) -> Any:
        """Take the oldest item, waiting for one, for at most `timeout` seconds; `queue.Empty` then."""
        live: _Contents = self.live
        done, item = live.move(lambda: bool(live.items), live.items.popleft, timeout)
        if not done:
            raise queue.Empty(f"{self!r} was empty for {timeout} s")
        return item

    def put_nowait(self, item: Any) -> None:
        """Put one item; `queue.Full` at once where there is no room."""
        self.put(item, timeout=0)

    def get_nowait(self) -> Any:
        """Take the oldest item; `queue.Empty` at once where there is none."""
        return self.get(timeout=0)

    def qsize(self) -> int:
        """How many items it holds."""
        return len(self.live.items)

    def empty(self) -> bool:
        """Whether it holds none."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether it has no room."""
        return self.qsize() >= self.maxsize

    def __repr__(self) -> str:
        return f"Queue(maxsize={self.maxsize})"


def is_queue(thing: Any) -> bool:
    """Whether a plan can have it between its branches: `Queue`, or a thread's `queue.Queue`."""
    return isinstance(thing, Queue | queue.Queue)


def max_size(thing: Any) -> int:
    """How many items it may hold; 0 for no bound."""
    return int(thing.maxsize)


def queue_name(shared: Any) -> str:
    """How a queue is shown: its kind and its bound."""
    return repr(shared) if isinstance(shared, Queue) else f"queue.{type(shared).__name__}(maxsize={shared.maxsize})"


class Port:
    """One queue as a run sees it: try, never wait; and how the run is woken."""

    def __init__(self, shared: Queue | queue.Queue[Any], wake: Callable[[], None]) -> None:
        self.queue, self.wake = shared, wake
        self.writers = 0
        """Branches of this run that still may put."""
        self.readers = 0
        """Branches of this run that still may get."""
        self.outside = False
        """Whether a thread outside this run may be at the other end."""
        self.signal: Signal = PENDING
        """What a stage answers that finds it full, or empty."""
        self.wants_item = True
        self._watcher: _Watcher | None = None
        if isinstance(shared, Queue):
            shared.live.listeners.append(wake)

    @property
    def is_full(self) -> bool:
        """Whether there is no room now."""
        return self.queue.full()

    @property
    def is_empty(self) -> bool:
        """Whether there is no item now."""
        return self.queue.empty()

    def try_put(self, item: Any) -> bool:
        """Put it if there is room."""
        try:
            self.queue.put_nowait(item)
        except queue.Full:
            self.wants_item = False
            return False
        return True

    def try_get(self) -> tuple[bool, Any]:
        """Take the oldest item if there is one."""
        try:
            return True, self.queue.get_nowait()
        except queue.Empty:
            self.wants_item = True
            return False, None

    def watch(self) -> None:
        """Before the run sleeps: have it woken when the queue changes."""
        if isinstance(self.queue, queue.Queue):
            if self._watcher is None:
                self._watcher = _Watcher(self.queue, self.wake)
            self._watcher.arm(self.wants_item)

    def close(self) -> None:
        """Wake nobody any more."""
        if isinstance(self.queue, Queue):
            if self.queue.is_open:
                self.queue.live.listeners.remove(self.wake)
        elif self._watcher is not None:
            self._watcher.close()

    def __repr__(self) -> str:
        return f"{queue_name(self.queue)}, which holds {self.queue.qsize()}"


class _Watcher:
    """A thread that waits on a `queue.Queue` for a sleeping run, on the queue's own condition."""

    def __init__(self, watched: queue.Queue[Any], wake: Callable[[], None]) -> None:
        self.watched, self.wake = watched, wake
        self.armed = threading.Semaphore(0)
        self.waiting = False
        self.wants_item = True
        self.closing = False
        self.thread = threading.Thread(target=self._work, name="flowrl queue watcher", daemon=True)
        self.thread.start()

    def arm(self, wants_item: bool) -> None:
        """Wake the run once, as soon as there is an item, or room for one."""
        with self.watched.mutex:
            if self.waiting:
                return
            self.waiting, self.wants_item = True, wants_item
        self.armed.release()

    def _ready(self) -> bool:
        size = len(self.watched.queue)
        return self.closing or (size > 0 if self.wants_item else size < self.watched.maxsize)

    def _work(self) -> None:
        while True:
            self.armed.acquire()
            with self.watched.mutex:
                condition = self.watched.not_empty if self.wants_item else self.watched.not_full
                condition.wait_for(self._ready)
                condition.notify()
                self.waiting = False
                closing = self.closing
            if closing:
                return
            self.wake()

    def close(self) -> None:
        """End the thread."""
        with self.watched.mutex:
            self.closing = True
            self.watched.not_full.notify_all()
            self.watched.not_empty.notify_all()
        self.armed.release()
        self.thread.join()
