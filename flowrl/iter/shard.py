"""What happens inside an actor: streams of items that a run opens there, one call an answer.

`ParallelIteratorWorker` is the base class of everything that can be a source (`from_actors`). A call that asks for the
next item has no arguments and a plain item answers as itself; an `Answer` comes only when there is more to say.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowrl.errors import ActorDiedError, RunError
from flowrl.iter.chain import build_chain
from flowrl.iter.failures import Failure
from flowrl.iter.freeze import freeze
from flowrl.iter.fuse import LinearOp
from flowrl.iter.nodes import Batch, Shuffle
from flowrl.iter.signals import BLOCKED, BUSY, END, Signal, locate, with_note
from flowrl.iter.sources import Feed, Polled, PolledStage, refuse_one_shot
from flowrl.metrics.context import ACTIVE, MetricsContext

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_ANSWER_ITEMS",
    "NUM_SLOTS",
    "Answer",
    "ParallelIteratorWorker",
    "Repartitioned",
    "ShardSpec",
    "ShardStream",
]

NUM_SLOTS = 4
CAUGHT = (Exception, asyncio.CancelledError, GeneratorExit)
"""What a user's function may raise and the plan lives on: not what ends a process."""
MAX_ANSWER_ITEMS = 10_000
MAX_ANSWER_BYTES = 32 * 2**20
MAX_IDLE_S = 0.1
"""After how long without an item a stream answers with none, so that others get their turn and a run can be left."""
MAX_PARTITION_ITEMS = 64
"""How many items a partition may lag behind before its neighbours get what was meant for it."""


@dataclass(slots=True)
class Answer:
    """More than one plain item: several, then perhaps a failure or the end, and what was counted meanwhile.

    With none of them the stream is still at work, and wants to be asked again; with BLOCKED only once something has reached
    its actor.
    """

    items: Sequence[Any] = ()
    signal: Signal | None = None
    failure: Failure | None = None
    counted: dict[str, Any] | None = None

    def freeze_with(self, freeze: Callable[[Any], Any]) -> Answer:
        """The answer with its items frozen one by one."""
        return Answer([freeze(item) for item in self.items], self.signal, self.failure, self.counted)


@dataclass(slots=True)
class ShardSpec:
    """All that a shard needs to know of the plan; it travels without the rest of it."""

    ops: list[LinearOp]
    where: str
    """`", shard 1 of 2"`, for errors."""
    label: str
    engine: Any
    source: Any = None
    """The iterable or factory; None where the actor has one of its own."""
    repeat: bool = False
    batch_ms: float = 0
    partitions: tuple[int, ...] = ()
    """The partitions that share this stream, in a plan with `repartition`."""


@dataclass(slots=True)
class Repartitioned:
    """The source of a partition: the streams of all shards above it. `position` is its place among those that are read."""

    streams: list[tuple[Any, int, str]]
    position: int
    batch_ms: float


SMALL = frozenset({int, float, bool, type(None)})
"""Types of items that are too small to be weighed: 10,000 of them are far below the bound of an answer."""


def size_of(item: Any, depth: int = 4) -> int:
    """Bytes of an item, about: what the arrays in it say, `depth` levels down, else what Python says of it."""
    nbytes = getattr(item, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    size = sys.getsizeof(item)
    if depth == 0:
        return size
    if isinstance(item, list | tuple):
        return size + sum(size_of(part, depth - 1) for part in item)
    parts = item if isinstance(item, dict) else getattr(item, "__dict__", {})
    return size + sum(size_of(part, depth - 1) for part in parts.values())


class PartitionSource:
    """The items that a partition gets from the streams above it: one call at each, whichever answers first."""

    sources: tuple[Any, ...] = ()

    def __init__(self, spec: Repartitioned, engine: Any, context: MetricsContext) -> None:
        self.engine, self.context = engine, context
        self.position, self.batch_ms = spec.position, spec.batch_ms
        self.streams = list(spec.streams)
        self.pending: dict[Any, tuple[Any, int, str]] = {}
        self.ready: deque[Any] = deque()
        self.items: deque[Any] = deque()
        self.failure: Failure | None = None
        self.num_out = 0
        self.owed: list[tuple[Any, int, str]] = list(spec.streams)

    def pull(self) -> Any:
        while True:
            if self.items:
                self.num_out += 1
                return self.items.popleft()
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure.error(self.engine.loads)
            for stream in self.owed:
                self.pending[self.engine.call(stream[0], "take_partition", stream[1], self.position, self.batch_ms)] = stream
            self.owed = []
            if not self.pending:
                return END
            if not self.ready:
                calls = list(self.pending)
                self.engine.wait(calls, num=1)  # may pass by one that is ready too: take all that are
                self.ready.extend(self.engine.wait(calls, 0, len(calls))[0])
            call = self.ready.popleft()
            stream = self.pending.pop(call)
            try:
                answer = self.engine.result(call)
            except ActorDiedError as error:
                error.dead_actor = stream[2]
                raise with_note(error, f"in {stream[2]}") from None
            except BaseException as error:
                self.owed.append(stream)
                raise with_note(error, f"in {stream[2]}") from None
            self._take(answer, stream)
            if not answer.items and answer.failure is None and answer.signal is None:
                return BUSY

    def _take(self, answer: Answer, stream: tuple[Any, int, str]) -> None:
        self.items.extend(answer.items)
        self.failure = answer.failure
        if answer.counted:
            self.context.merge(answer.counted)
        if answer.signal is not END:
            self.owed.append(stream)


class ShardStream:
    """One stream in an actor: a source and the plan's stages over it."""

    def __init__(self, spec: ShardSpec, source: Any, repeat: bool) -> None:
        self.spec, self.engine = spec, spec.engine
        self.context = MetricsContext()
        self.upstream: PartitionSource | PolledStage | None = None
        if isinstance(spec.source, Repartitioned):
            self.upstream = PartitionSource(spec.source, spec.engine, self.context)
        elif isinstance(source, Polled):
            self.upstream = PolledStage(source, spec.label, spec.where)
        feed = Feed(source, repeat) if self.upstream is None else None
        waits = isinstance(self.upstream, PolledStage)
        self.stages, self.exits = build_chain(
            spec.ops, self.upstream, feed, spec.label, self.context, waits=waits, tasks=spec.engine.tasks, where=spec.where
        )
        self.step: Any = self.stages[-1] if self.stages else self.upstream
        self.num_made = 0
        self.buffers: dict[int, deque[Any]] = {position: deque() for position in range(len(spec.partitions))}
        self.num_dealt = 0
        self.ended = False

    def _pull(self) -> Any:
        """The next item, END, BLOCKED, or BUSY where much was dropped and others may have a turn."""
        x = self.step.pull()
        if x is BUSY and self.engine.clock != "count":
            until = time.monotonic() + MAX_IDLE_S
            while x is BUSY and time.monotonic() < until:
                x = self.step.pull()
        return x

    def _failure(self, error: BaseException) -> Failure:
        return Failure.of(locate(error, self.spec.where), self.engine.dumps, self.engine.loads)

    def next(self) -> Any:
        """The next item as itself, or an `Answer` where there is more to say."""
        slot = ACTIVE.slot
        before = slot[0]
        slot[0] = context = self.context
        try:
            x = self._pull()
        except CAUGHT as error:
            return Answer(failure=self._failure(error), counted=self._counted())
        finally:
            slot[0] = before
        if x.__class__ is Signal:
            return Answer(signal=None if x is BUSY else x, counted=self._counted())
        self.num_made += 1
        if context.counters or context.timers or context.values or context.info:
            return Answer(items=(x,), counted=context.take())
        return x

    def next_batch(self) -> Answer:
        """All that could be made in `batch_ms`, but no more than an answer may hold; always an `Answer`."""
        return self._batch(self.spec.batch_ms, self._pull)

    def _batch(self, batch_ms: float, pull: Any) -> Answer:
        items: list[Any] = []
        answer = Answer(items=items)
        counting = self.engine.clock == "count"
        most = max(1, min(int(batch_ms), MAX_ANSWER_ITEMS)) if counting else MAX_ANSWER_ITEMS
        clock, append = time.perf_counter, items.append
        until = math.inf if counting else clock() + batch_ms / 1e3
        num_bytes = 0
        slot = ACTIVE.slot
        before = slot[0]
        slot[0] = self.context
        try:
            for _ in range(most):
                x = pull()
                kind = x.__class__
                if kind is Signal:
                    answer.signal = x if x is END or (x is BLOCKED and not items) else None
                    break
                if kind not in SMALL:
                    x = freeze(x)  # a source may use its array again for the next item of this answer
                    num_bytes += size_of(x)
                append(x)
                if num_bytes >= MAX_ANSWER_BYTES:
                    break
                if clock() >= until:
                    break
        except CAUGHT as error:
            answer.failure = self._failure(error)
        finally:
            slot[0] = before
        self.num_made += len(items)
        answer.counted = self._counted()
        return answer

    def take_partition(self, position: int, batch_ms: float) -> Answer:
        """The next item (or batch) for one of the partitions that share this stream."""
        if batch_ms > 0:
            return self._batch(batch_ms, lambda: self._pull_for(position))
        return self._batch(1 if self.engine.clock == "count" else 0, lambda: self._pull_for(position))

    def _pull_for(self, position: int) -> Any:
        """Element j goes to partition j mod n; one whose buffer is full is skipped, not waited for."""
        mine = self.buffers[position]
        while not mine:
            x = END if self.ended else self._pull()
            if x.__class__ is Signal:
                self.ended = x is END
                return x
            target = self.num_dealt % len(self.buffers)
            self.num_dealt += 1
            if target == position or len(self.buffers[target]) >= MAX_PARTITION_ITEMS:
                return x
            self.buffers[target].append(freeze(x))
        return mine.popleft()

    def _counted(self) -> dict[str, Any] | None:
        return None if self.context.empty else self.context.take()

    def counts(self) -> list[tuple[int, int, int]]:
        """(in, out, held) of each op of the plan here, then of the whole stream's end."""
        rows = []
        for index, (stage_index, place) in enumerate(self.exits):
            stage = self.stages[stage_index]
            if place < 0:
                rows.append((stage.num_in, stage.num_out, stage.num_held))
                continue
            within = index > 0 and self.exits[index - 1][0] == stage_index  # a fused step has counts of each of its ops
            num_in = rows[-1][1] if within else stage.num_in
            held = stage.num_held if isinstance(self.spec.ops[index].stage, Batch | Shuffle) else 0
            rows.append((num_in, stage.counts[place], held))
        parked = sum(len(buffer) for buffer in self.buffers.values())
        last = self.stages[-1].num_out if self.stages else self.num_made
        return [*rows, (last, self.num_made, parked)]

    def close(self) -> tuple[int, int]:
        """Let go of what the stages hold; how many items were made in all, and how many were taken from streams above."""
        for stage in reversed(self.stages):
            close = getattr(stage, "close", None)
            if close is not None:
                close()
        parked = sum(len(buffer) for buffer in self.buffers.values())
        return self.num_made + parked, self.upstream.num_out if isinstance(self.upstream, PartitionSource) else 0


@dataclass(slots=True)
class _Streams:
    """The streams that are open in an actor: the first four by slot, each with a method of its own; the others by number."""

    slots: list[ShardStream | None] = field(default_factory=lambda: [None] * NUM_SLOTS)

    def add(self, stream: ShardStream) -> int:
        for slot, other in enumerate(self.slots):
            if other is None:
                self.slots[slot] = stream
                return slot
        self.slots.append(stream)
        return len(self.slots) - 1


class ParallelIteratorWorker:
    """Base class of an actor that is a source: what `from_actors` takes.

    >>> worker = ParallelIteratorWorker([1, 2, 3], repeat=False)

    `item_generator` is an iterable or a function that returns one; each run makes its items anew from it, while the
    actor's own state goes on. With `repeat` it begins again at its end.
    """

    _item_generator: Any = None
    _repeat = False
    _open_streams: _Streams | None = None

    def __init__(self, item_generator: Any, repeat: bool) -> None:
        if item_generator is not None:
            refuse_one_shot(item_generator, type(self).__name__, "its constructor")
        self._item_generator, self._repeat = item_generator, repeat

    def open_stream(self, packed: bytes) -> int:
        """A stream of a run's own; its slot. `packed` is a `ShardSpec`."""
        spec: ShardSpec = pickle.loads(packed)
        source, repeat = (spec.source, spec.repeat) if spec.source is not None else (self._item_generator, self._repeat)
        if source is None:
            raise RunError(
                f"{type(self).__name__} has no items: its __init__ must call ParallelIteratorWorker.__init__(self, item_generator, repeat)"
            )
        for op in spec.ops:
            bind = getattr(getattr(op.stage, "fn", None), "bind_to_actor", None)
            if bind is not None:
                bind(self)
        if self._open_streams is None:
            self._open_streams = _Streams()
        return self._open_streams.add(ShardStream(spec, source, repeat))

    def _stream(self, slot: int) -> ShardStream:
        stream = self._open_streams.slots[slot] if self._open_streams is not None else None
        if stream is None:
            raise RunError(f"no stream is open in slot {slot} of {type(self).__name__}: its run was left")
        return stream

    def next_0(self) -> Any:
        """The next item of the stream in slot 0. No argument: one would cost 12-23 % of a tiny call."""
        return self._stream(0).next()

    def next_1(self) -> Any:
        """The next item of the stream in slot 1."""
        return self._stream(1).next()

    def next_2(self) -> Any:
        """The next item of the stream in slot 2."""
        return self._stream(2).next()

    def next_3(self) -> Any:
        """The next item of the stream in slot 3."""
        return self._stream(3).next()

    def next_of(self, slot: int) -> Any:
        """The next item of the stream in any slot."""
        return self._stream(slot).next()

    def next_batch(self, slot: int) -> Answer:
        """The next batch of the stream in `slot`."""
        return self._stream(slot).next_batch()

    def take_partition(self, slot: int, position: int, batch_ms: float) -> Answer:
        """The next item or batch for a partition that shares the stream in `slot`."""
        return self._stream(slot).take_partition(position, batch_ms)

    def stream_counts(self, slot: int) -> list[tuple[int, int, int]]:
        """(in, out, held) of each stage of the stream in `slot`."""
        return self._stream(slot).counts()

    def close_stream(self, slot: int) -> tuple[int, int]:
        """Close the stream in `slot`; how many items it made, and took from streams above it."""
        stream = self._stream(slot)
        assert self._open_streams is not None
        self._open_streams.slots[slot] = None
        return stream.close()
