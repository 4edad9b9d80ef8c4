"""What works between two queues of a plan: a learner, as the run sees it.

In a thread of its own; on the serial engine there is none, and the run has it take a step where a branch waits for it, so
that the whole run can be repeated from its seed.
"""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from flowrl.errors import QueueClosedError
from flowrl.iter.handles import Handle
from flowrl.iter.queues import Queue
from flowrl.iter.signals import with_note

__all__ = ["QueueWorker"]

JOIN_S = 2.0
"""How long leaving a run waits for the item that is being worked on. The thread ends after it, and what comes of it is nobody's."""


class QueueWorker(Handle):
    """A handle that takes the items of `inqueue` and puts what `work(item)` makes of each into `outqueue`, one for one, in order.

    An error of `work` is its end: whoever pulls the plan gets that error, each time.
    """

    def __init__(self, inqueue_size: int, outqueue_size: int) -> None:
        super().__init__()
        self.inqueue, self.outqueue = Queue(inqueue_size), Queue(outqueue_size)
        self.inqueue.other_end = self.outqueue.other_end = self
        self.failure: BaseException | None = None
        """What it has died of."""
        self._traceback: TracebackType | None = None
        self._died_s = 0.0
        self._is_stuck = False
        self._thread: threading.Thread | None = None
        self._left: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        """Threads of runs that are over, which still work on their last item."""

    def work(self, item: Any) -> Any:
        """What becomes of one item. Where `is_left` is true after it, another run may have begun: leave what is on the handle alone."""
        raise AssertionError("every queue worker has work of its own")

    def begin(self, engine: Any) -> None:
        """Open what the work needs."""

    def finish(self, engine: Any) -> None:
        """Close what `begin` has opened."""

    def is_alive(self) -> bool:
        """Whether it is open and has not died."""
        return self.is_open and self.failure is None

    @property
    def dead_s(self) -> float:
        """Seconds since it died; 0 while it lives."""
        return time.monotonic() - self._died_s if self.failure is not None else 0.0

    def raise_failure(self, label: str) -> None:
        """Raise what it has died of, with its own traceback; nothing while it lives."""
        if self.failure is not None:
            raise with_note(self.failure, f"in {type(self).__name__}, read by {label}").with_traceback(self._traceback)

    @property
    def is_left(self) -> bool:
        """Whether the thread that asks belongs to a run that is over."""
        return threading.current_thread() in self._left

    @property
    def is_stepped(self) -> bool:
        """Whether the run has it take steps: it is open, and has no thread."""
        return self._thread is None

    @property
    def has_work(self) -> bool:
        """Whether an item has come in whose result has not come out."""
        return bool(self.inqueue.live.num_put > self.outqueue.live.num_put) and self.failure is None

    @property
    def will_act(self) -> bool:
        """Whether it takes or gives an item by itself, without another branch of the plan."""
        return not self.is_stepped and self.has_work and not (self._is_stuck and self.outqueue.full())

    def step(self) -> bool:
        """Work on one item here and now; False where it has a thread for that, no item, or no room."""
        if not self.is_stepped or self.failure is not None or self.outqueue.full():
            return False
        found, item = self.inqueue.live.get(0)
        if not found:
            return False
        try:
            result = self.work(item)
        except Exception as error:
            self._die(error)
            return False
        self.outqueue.put_nowait(result)
        return True

    # --- what a run asks of a handle ------------------------------------------------------------------------------

    def start_live(self, engine: Any) -> Any:
        self.failure, self._is_stuck, self._thread = None, False, None
        with ExitStack() as stack:
            self.begin(engine)
            stack.callback(self.finish, engine)
            for queue in (self.inqueue, self.outqueue):
                queue.retain(engine)
                stack.callback(queue.release)
            if engine.clock != "count":
                contents = (self.inqueue.live, self.outqueue.live)
                self._thread = threading.Thread(target=self._loop, args=contents, name=f"flowrl {type(self).__name__}", daemon=True)
                self._thread.start()
            return stack.pop_all()

    def stop_live(self, engine: Any, live: ExitStack) -> None:
        if self._thread is not None:
            for queue in (self.inqueue, self.outqueue):
                queue.live.close()
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                self._left.add(self._thread)
        live.close()

    def state_elsewhere(self) -> dict[str, Any]:
        queues = {"inqueue": self.inqueue, "outqueue": self.outqueue}
        return {**super().state_elsewhere(), **queues, "failure": None, "_is_stuck": False, "_thread": None, "_left": weakref.WeakSet()}

    def _loop(self, inqueue: Any, outqueue: Any) -> None:
        try:
            while True:
                self._one_item(inqueue, outqueue)
        except BaseException as error:
            if not (isinstance(error, QueueClosedError) and inqueue.closed):
                self._die(error)
            inqueue.wake()

    def _one_item(self, inqueue: Any, outqueue: Any) -> None:
        result = self.work(self._next_item(inqueue))
        if not outqueue.put(result, 0):
            self._is_stuck = True
            inqueue.wake()
            outqueue.put(result, None)
            self._is_stuck = False

    def _next_item(self, inqueue: Any) -> Any:
        return inqueue.get(None)[1]

    def _die(self, error: BaseException) -> None:
        if self.is_left:
            return
        self._traceback, self._died_s = error.__traceback__, time.monotonic()
        self.failure = error
