"""A chain of linear stages as stage objects: fused steps, and the stages that cannot be a part of one.

The same chain is built in the driver and in a shard. A stage object has `pull() -> item | Signal`, `sources` (the
actors that made the last item, where the plan asks for them), counts, and `close()`.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flowrl.iter.fuse import FusedStep, LinearOp, fusible, split_chain
from flowrl.iter.naming import short
from flowrl.iter.nodes import Map, Shuffle, Transform
from flowrl.iter.signals import BUSY, EMPTY, END, MAX_IDLE_STEPS, Signal, call_user, locate, stop_iteration_error, with_note
from flowrl.iter.sources import Feed
from flowrl.metrics.context import ACTIVE, MetricsContext

__all__ = ["ConcurrentMap", "InlineTransform", "StageObject", "ThreadTransform", "build_chain"]

JOIN_S = 5.0


class StageObject:
    """What every stage object that is not a fused step has."""

    sources: tuple[Any, ...] = ()
    num_in = 0
    num_out = 0

    def pull(self) -> Any:
        """The next item, or why there is none."""
        raise AssertionError("every stage has a pull of its own")

    @property
    def num_held(self) -> int:
        """Items parked here now."""
        return 0

    def why_blocked(self) -> str | None:
        """What it waits for when it answers BLOCKED; None for a stage that only passes that on."""
        return None

    def close(self) -> None:
        """Let go of threads and user generators."""


class ConcurrentMap(StageObject):
    """`for_each(fn, max_concurrency=m)` in a shard: at most m calls at once, results in input order."""

    def __init__(self, upstream: Any, tasks: Any, width: int, label: str, where: str, context: MetricsContext) -> None:
        self.upstream, self.tasks, self.width, self.context = upstream, tasks, width, context
        self.label, self.where = label, where
        self.window: deque[tuple[Any, Any, BaseException | None]] = deque()
        """Each item whose result is not handed on: its call, the item, or what went wrong above."""
        self.ended = False

    def pull(self) -> Any:
        signal: Signal = BUSY
        while len(self.window) < self.width and not self.ended:
            try:
                x = self.upstream.pull()
            except BaseException as error:
                self.window.append((None, None, error))
                continue
            if x is END:
                self.ended = True
            elif x.__class__ is Signal:
                signal = x
                break
            else:
                self.num_in += 1
                self.window.append((self.tasks.submit(x), x, None))
        if not self.window:
            return END if self.ended else signal
        call, x, failure = self.window.popleft()
        if failure is not None:
            raise failure
        try:
            value = self.tasks.result(call, self.context)
        except StopIteration as error:
            raise with_note(stop_iteration_error(self.label, error), f"in {self.label}{self.where}, item {short(x)}") from error
        except Exception as error:
            with_note(error, f"in {self.label}{self.where}, item {short(x)}")
            raise
        self.num_out += 1
        return value

    @property
    def num_held(self) -> int:
        return len(self.window)


class InlineTransform(StageObject):
    """`transform(fn)` where upstream never has to be waited for: fn's iterator is pulled in place."""

    def __init__(self, upstream: Any, fn: Callable[[Iterator[Any]], Any], label: str, where: str) -> None:
        self.upstream, self.fn, self.label, self.where = upstream, fn, label, where
        self.failures: deque[BaseException] = deque()
        self.iterator: Any = None
        self.ready: deque[Any] = deque()

    def take(self) -> Any:
        """What fn sees of upstream: items, and an end. Failures wait beside it for the consumer, but not for ever."""
        while True:
            try:
                x = self.upstream.pull()
            except Exception as error:
                self.failures.append(locate(error, self.where))
                if len(self.failures) > MAX_IDLE_STEPS:
                    raise self.failures[-1] from error.__cause__
                continue
            if x is END:
                raise StopIteration
            if x.__class__ is not Signal:
                self.num_in += 1
                return x

    def pull(self) -> Any:
        if not self.failures and not self.ready:
            try:
                if self.iterator is None:
                    self.iterator = open_transform(self.fn, _Items(self.take), self.label, self.where)
                x = call_user(next, self.label, self.where, self.iterator, END)
            except Exception as error:
                if not any(error is told for told in self.failures):
                    self.failures.append(error)
                x = END
            if x is END:
                self.iterator = EMPTY
            self.ready.append(x)
        if self.failures:
            raise self.failures.popleft()
        x = self.ready.popleft()
        self.num_out += x is not END
        return x

    def close(self) -> None:
        close_iterator(self.iterator)


class _Items:
    """The plain iterator that a `transform` hands to its function; it has nothing else that the function could touch."""

    __slots__ = ("_take",)

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        return self._take()


def open_transform(fn: Callable[[Iterator[Any]], Any], items: Iterator[Any], label: str, where: str) -> Iterator[Any]:
    """The iterator that the user's `fn` makes of `items`."""
    made = call_user(fn, label, where, items)
    if not hasattr(made, "__iter__"):
        wrong = TypeError(f"the function of {label} returned {short(made)}: it must return an iterator, or be a generator function")
        raise with_note(wrong, f"in {label}{where}")
    return iter(made)


def close_iterator(iterator: Any) -> None:
    """Let go of what the user's `fn` made."""
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


class _Closed(BaseException):
    """Thrown into a transform's thread when the run is left."""


class ThreadTransform(StageObject):
    """`transform(fn)` where upstream may have to be waited for: fn runs in a thread that can be suspended.

    Driver and thread take turns, one of them always waits, so nothing runs at the same time. `asked` is what the thread
    gives (an item, its end, an error, or a wish for input), `given` what it gets.
    """

    def __init__(self, upstream: Any, fn: Callable[[Iterator[Any]], Any], label: str, context: MetricsContext) -> None:
        self.upstream, self.fn, self.label, self.context = upstream, fn, label, context
        self.thread: threading.Thread | None = None
        self.to_thread, self.to_driver = threading.Semaphore(0), threading.Semaphore(0)
        self.given: Any = None
        self.asked: tuple[str, Any] = ("start", None)
        self.closing = self.working = False

    def take(self) -> Any:
        """What fn sees of upstream, in its thread: items, and an end."""
        x = self._hand_over(("input", None))
        if x is END:
            raise StopIteration
        return x

    def _hand_over(self, asked: tuple[str, Any]) -> Any:
        self.asked = asked
        self.to_driver.release()
        self.to_thread.acquire()
        if self.closing:
            raise _Closed
        return self.given

    def _work(self) -> None:
        ACTIVE.slot[0] = self.context
        iterator: Any = None
        try:
            iterator = open_transform(self.fn, _Items(self.take), self.label, "")
            while True:
                x = call_user(next, self.label, "", iterator, END)
                if x is END:
                    break
                self._hand_over(("item", x))
            self.asked = ("end", None)
        except _Closed:
            self.asked = ("end", None)
        except BaseException as error:
            self.asked = ("error", error)
        try:
            close_iterator(iterator)
        except BaseException as error:
            self.asked = ("error", error)
        ACTIVE.slot[0] = None
        self.to_driver.release()

    def _resume(self) -> None:
        """Let the thread work until it asks for something. Interrupted, the driver waits for that in the next pull."""
        self.working = True
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name=f"flowrl {self.label}", daemon=True)
            self.thread.start()
        else:
            self.to_thread.release()
        self._await_thread()

    def _await_thread(self) -> None:
        self.to_driver.acquire()
        self.working = False

    def pull(self) -> Any:
        if self.working:
            self._await_thread()
        if self.asked[0] == "start":
            self._resume()
        while self.asked[0] == "input":
            x = self.upstream.pull()
            if x.__class__ is Signal and x is not END:
                return x
            self.num_in += x is not END
            self.given = x
            self._resume()
        kind, value = self.asked
        if kind == "item":
            self.asked = ("resume", None)
            self.num_out += 1
            return value
        if kind == "resume":
            self._resume()
            return self.pull()
        self.asked = ("end", None)
        if kind == "error":
            raise value
        return END

    def close(self) -> None:
        if self.thread is not None and self.thread.is_alive() and self.asked[0] != "end":
            self.closing = True
            self.to_thread.release()
            self.thread.join(JOIN_S)


def build_chain(
    ops: Sequence[LinearOp],
    upstream: Any,
    feed: Feed | None,
    feed_label: str,
    context: MetricsContext,
    *,
    tagged: bool = False,
    loops: bool = False,
    waits: bool = False,
    tasks: Callable[[Any, Any], Any] | None = None,
    special: Callable[[LinearOp, Any], Any] | None = None,
    where: str = "",
) -> tuple[list[Any], list[tuple[int, int]]]:
    """The stage objects of a chain, and for each op (which stage, which of its counts): what came out of it so far.

    `waits` says that upstream may be PENDING or BLOCKED; `special` makes the stage of an op that this module does not
    know; `where` is the shard, for errors.
    """
    stages: list[Any] = []
    exits: list[tuple[int, int]] = [(0, 0)] * len(ops)
    first = 0
    while first < len(ops) or (not stages and upstream is None):
        end = first
        while end < len(ops) and fusible(ops[end].stage):
            end += 1
        if end > first or (not stages and upstream is None):
            group = ops[first:end]
            labels = [op.label for op in group]
            for piece in split_chain(group, tagged):
                from_feed = not stages and upstream is None
                shuffled = [op for op in (group[primitive.op] for primitive in piece) if isinstance(op.stage, Shuffle)]
                rng = _shuffle_rng(shuffled[0]) if shuffled else None
                step = FusedStep(
                    piece,
                    labels,
                    upstream=None if from_feed else stages[-1] if stages else upstream,
                    feed=feed if from_feed else EMPTY,
                    feed_label=feed_label,
                    tagged=tagged,
                    rng=rng,
                    context=context,
                    loops=loops,
                )
                if from_feed and feed is not None:
                    feed.state = step.state
                for op, place in step.exits.items():
                    exits[first + op] = (len(stages), place)
                stages.append(step)
        if end < len(ops):
            above = stages[-1] if stages else upstream
            stage = _lone_stage(ops[end], above, context, waits, tasks, special, where)
            exits[end] = (len(stages), -1)
            stages.append(stage)
            end += 1
        first = end
    return stages, exits


def _shuffle_rng(op: LinearOp) -> random.Random:
    assert isinstance(op.stage, Shuffle)
    return random.Random(f"{op.stage.seed}/{op.seed_key}")


def _lone_stage(op: LinearOp, above: Any, context: MetricsContext, waits: bool, tasks: Any, special: Any, where: str) -> Any:
    stage = op.stage
    if isinstance(stage, Transform):
        return ThreadTransform(above, stage.fn, op.label, context) if waits else InlineTransform(above, stage.fn, op.label, where)
    if isinstance(stage, Map) and tasks is not None:
        return ConcurrentMap(above, tasks(stage.fn, stage.resources), stage.max_concurrency, op.label, where, context)
    assert special is not None, f"nobody knows how to run {op.label}"
    return special(op, above)
