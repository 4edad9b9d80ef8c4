"""Bounded queues between branches of a plan, or between a plan and a thread; and what a run sees of them.

`Queue` is flowrl's own: a handle, opened by the run, that wakes the run when a thread puts or gets. A bounded
`queue.Queue` works too; since it has no way to call anybody, a run that has nothing else to do parks one thread on it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowrl.errors import PlanError, QueueClosedError
from flowrl.iter.handles import Handle
from flowrl.iter.signals import BLOCKED, PENDING, Signal

if TYPE_CHECKING:
    from flowrl.iter.queue_worker import QueueWorker

__all__ = ["Port", "Queue", "is_queue", "max_size", "queue_name"]


class _Contents:
    """What is behind an open `Queue`."""

    def __init__(self, maxsize: int) -> None:
        self.items: deque[Any] = deque()
        self.maxsize = maxsize
        self.changed = threading.Condition()
        self.listeners: list[Callable[[], None]] = []
        self.num_put = 0
        self.closed = False

    def move(self, ready: Callable[[], bool], act: Callable[[], Any], timeout_s: float | None) -> tuple[bool, Any]:
        """Wait until `ready`, then `act`; whether that came about in time, and what `act` gave."""
        with self.changed:
            if not ready() and not self.closed and (timeout_s == 0 or not self.changed.wait_for(lambda: self.closed or ready(), timeout_s)):
                return False, None
            if self.closed:
                raise QueueClosedError("the queue was closed while something was at it: whoever had opened it is done with it")
            value = act()
            self.changed.notify_all()
        self.wake()
        return True, value

    def put(self, item: Any, timeout_s: float | None) -> bool:
        """Whether there was room in time."""

        def append() -> None:
            self.items.append(item)
            self.num_put += 1

        return self.move(lambda: len(self.items) < self.maxsize, append, timeout_s)[0]

    def get(self, timeout_s: float | None) -> tuple[bool, Any]:
        """Whether there was an item in time, and which."""
        return self.move(lambda: bool(self.items), self.items.popleft, timeout_s)

    def wake(self) -> None:
        """Have the runs that sleep look."""
        for wake in tuple(self.listeners):
            wake()

    def close(self) -> None:
        """End the waiting of whoever waits."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class Queue(Handle):
    """A bounded queue between two branches of a plan (`Enqueue`, `Dequeue`), or between a plan and a learner.

    >>> q = Queue(maxsize=2)
    >>> with q.open():
    ...     q.put("a")
    ...     q.get(), q.qsize()
    ('a', 0)

    A full queue blocks who puts, an empty one who gets; nothing is dropped. Who waits at it when it is closed gets
    `QueueClosedError`. Each run begins with it empty, unless the user opened it: then its contents stay from plan to plan, and a
    thread of the user's may be at its other end.
    """

    def __init__(self, maxsize: int) -> None:
        if not isinstance(maxsize, int) or isinstance(maxsize, bool) or maxsize < 1:
            raise PlanError(f"Queue(maxsize={maxsize!r}) has no bound: give the most items that it may hold, at least 1")
        super().__init__()
        self.maxsize = maxsize

    other_end: QueueWorker | None = None
    """The learner at its other end, if there is one."""

    def start_live(self, engine: Any) -> _Contents:
        return _Contents(self.maxsize)

    def stop_live(self, engine: Any, live: _Contents) -> None:
        live.close()

    def state_elsewhere(self) -> dict[str, Any]:
        return {**super().state_elsewhere(), "maxsize": self.maxsize}

    def put(self, item: Any, timeout: float | None = None) -> None:
        """Put one item, waiting for room, for at most `timeout` seconds; `queue.Full` then."""
        if not self.live.put(item, timeout):
            raise queue.Full(f"{self!r} was full for {timeout} s")

    def get(self, timeout: float | None = None) -> Any:
        """Take the oldest item, waiting for one, for at most `timeout` seconds; `queue.Empty` then."""
        done, item = self.live.get(timeout)
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
        self.only_branches = False
        """Whether only branches of this run can fill or empty it."""
        self.worker = shared.other_end if isinstance(shared, Queue) else None
        """The learner at its other end, and `far`, the port of the learner's other queue in this run."""
        self.far: Port | None = None
        self.wants_item = True
        self._watcher: _Watcher | None = None
        if isinstance(shared, Queue):
            shared.live.listeners.append(wake)

    @property
    def signal(self) -> Signal:
        """What a stage answers that finds it full, or empty."""
        if self.worker is not None:
            return PENDING if self.outside or self.worker.will_act else BLOCKED
        return BLOCKED if self.only_branches else PENDING

    @property
    def may_be_written(self) -> bool:
        """Whether another item may come."""
        if self.worker is not None and self.far is not None:
            return self.far.writers > 0 or self.worker.has_work
        return self.outside or self.writers > 0

    @property
    def is_read(self) -> bool:
        """Whether a branch of this run still reads it, or what a learner makes of it."""
        return (self.far.readers if self.far is not None else self.readers) > 0

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
