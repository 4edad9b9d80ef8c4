"""A chain of linear stages as one fused step: Python source, written for the chain and compiled when a run opens.

A step costs about one call an item, however long the chain. All that changes lives in its `StepState`; the code holds
constants only. Which line belongs to which operator is kept beside the code, so that a failing one can be named from
the traceback and the happy path keeps no books. Counts are kept only where they can differ: at the entry, after each
filter and flatten, at the exit.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from flowrl.iter.nodes import Batch, Combine, Filter, Flatten, LinearStage, Map, Shuffle, ZipSource
from flowrl.iter.signals import BLOCKED, BUSY, EMPTY, END, MAX_IDLE_STEPS, PENDING, Signal
from flowrl.metrics.context import ACTIVE

__all__ = ["FusedStep", "LinearOp", "StepState", "fusible", "split_chain"]


@dataclass(slots=True)
class LinearOp:
    """One linear stage of a chain, ready to travel to a shard: the stage and how an error calls it."""

    stage: LinearStage
    label: str
    seed_key: int = 0
    """The shard's index at this place of the plan: what makes the shuffles of each shard differ."""


@dataclass(frozen=True, slots=True)
class _Primitive:
    """What code is written for: `combine` is two of them."""

    kind: str
    op: int
    value: Any


class StepState:
    """All that a fused step remembers between two pulls."""

    __slots__ = ("buffer", "current", "current_sources", "feed", "merged", "rng")

    def __init__(self, feed: Any, rng: random.Random | None) -> None:
        self.feed = feed
        self.current: Iterator[Any] = EMPTY
        self.current_sources: tuple[Any, ...] = ()
        self.buffer: list[Any] = []
        self.merged: list[Any] = []
        self.rng = rng


def fusible(stage: LinearStage) -> bool:
    """Whether the stage can be a part of a fused step; the others are stages of their own."""
    return isinstance(stage, Combine | Filter | Batch | Flatten | Shuffle | ZipSource) or (
        isinstance(stage, Map) and not stage.is_concurrent
    )


def _primitives(ops: Sequence[LinearOp], tagged: bool) -> Iterator[_Primitive]:
    for index, op in enumerate(ops):
        stage = op.stage
        if isinstance(stage, Map | Combine):
            merges = tagged and getattr(stage.fn, "merges_items", False)
            yield _Primitive("merge" if merges else "map", index, stage.fn)
            if isinstance(stage, Combine):
                yield _Primitive("flatten", index, None)
        elif isinstance(stage, Filter):
            yield _Primitive("filter", index, stage.fn)
        elif isinstance(stage, Flatten):
            yield _Primitive("flatten", index, None)
        elif isinstance(stage, ZipSource):
            yield _Primitive("zip_all" if stage.every else "zip", index, None)
        elif isinstance(stage, Batch):
            yield _Primitive("batch", index, stage.n)
        elif isinstance(stage, Shuffle):
            yield _Primitive("shuffle", index, stage.shuffle_buffer_size)


def split_chain(ops: Sequence[LinearOp], tagged: bool) -> list[list[_Primitive]]:
    """The chain in pieces that one step each can do: maps and filters, at most one flatten, then a batch or shuffle."""
    pieces: list[list[_Primitive]] = [[]]
    for primitive in _primitives(ops, tagged):
        piece = pieces[-1]
        closed = bool(piece) and piece[-1].kind in ("batch", "shuffle")
        second = primitive.kind == "flatten" and any(other.kind == "flatten" for other in piece)
        if closed or second:
            pieces.append(piece := [])
        piece.append(primitive)
    return pieces


class _Writer:
    """Source text, with the line of each primitive."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.owner: dict[int, int] = {}

    def add(self, depth: int, *texts: str, owner: int | None = None) -> None:
        for text in texts:
            self.lines.append("    " * depth + text)
            if owner is not None:
                self.owner[len(self.lines)] = owner


def count_places(kinds: tuple[str, ...]) -> tuple[int, ...]:
    """For each primitive, which of the step's counts says how many items came out of it."""
    places, place = [], 0
    for index, kind in enumerate(kinds):
        last = index == len(kinds) - 1
        if last or kind in ("filter", "flatten"):
            place += 1
        places.append(place)
    return tuple(places)


SOURCE = -1
"""Owner of the lines that ask a Python iterator for its next item."""


@functools.lru_cache(maxsize=512)
def _compile(kinds: tuple[str, ...], from_feed: bool, tagged: bool, loop: bool) -> tuple[CodeType, dict[int, int]]:
    """Code of a step's `pull` (or, for `loop`, of the generator that a `for` statement runs) and the owner of each line."""
    out = _Writer()
    places = count_places(kinds)
    flat = kinds.index("flatten") if "flatten" in kinds else len(kinds)
    has_flat = flat < len(kinds)
    tail = kinds[-1] if kinds and kinds[-1] in ("batch", "shuffle") else None
    body_end = len(kinds) - 1 if tail else len(kinds)
    drops = "filter" in kinds or has_flat
    names = ", ".join(f"f{index}" for index in range(len(kinds)))
    step_exit = places[-1] if places else None

    def emit(depth: int) -> None:
        if step_exit is not None:
            out.add(depth, f"counts[{step_exit}] += 1")
        if tagged:
            out.add(depth, "step.sources = s")
        if loop:
            out.add(
                depth,
                "slot[0] = before",
                "yield x",
                "if halt:",
                "    if owner.is_over:",
                "        return",
                "    raise halt.pop(0)",
                "slot = ACTIVE.slot",
                "before = slot[0]",
                "slot[0] = context",
            )
        else:
            out.add(depth, "return x")

    def skip(depth: int) -> None:
        if not loop:
            out.add(depth, "idle += 1", f"if idle > {MAX_IDLE_STEPS}:", "    return BUSY")
        out.add(depth, "continue")

    def body(depth: int, first: int, end: int) -> None:
        for index in range(first, end):
            kind = kinds[index]
            if kind == "map":
                out.add(depth, f"x = f{index}(x)", owner=index)
            elif kind == "merge":
                out.add(depth, "state.merged.extend(s)")
                out.add(depth, f"x = f{index}(x)", owner=index)
                out.add(depth, "s = tuple(dict.fromkeys(state.merged))", "if type(x) is not list or x:", "    state.merged.clear()")
            elif kind == "filter":
                out.add(depth, f"if not f{index}(x):", owner=index)
                skip(depth + 1)
                if index < len(kinds) - 1:
                    out.add(depth, f"counts[{places[index]}] += 1")
            elif kind == "zip":
                out.add(depth, "x = (s[0], x)")
            elif kind == "zip_all":
                out.add(depth, "x = (s, x)")

    def take_shuffled(depth: int) -> None:
        out.add(depth, "i = int(state.rng.random() * len(buffer))", "buffer[i], buffer[-1] = buffer[-1], buffer[i]")
        out.add(depth, "x, s = buffer.pop()" if tagged else "x = buffer.pop()")

    def take_batch(depth: int) -> None:
        out.add(depth, "x = buffer[:]", "buffer.clear()")
        if tagged:
            out.add(depth, "s = tuple(dict.fromkeys(state.merged))", "state.merged.clear()")

    def finish(depth: int) -> None:
        if tail == "batch":
            out.add(depth, "buffer.append(x)")
            if tagged:
                out.add(depth, "state.merged.extend(s)")
            out.add(depth, f"if len(buffer) < f{len(kinds) - 1}:", "    continue")
            take_batch(depth)
        elif tail == "shuffle":
            out.add(depth, "buffer.append((x, s))" if tagged else "buffer.append(x)")
            out.add(depth, f"if len(buffer) < f{len(kinds) - 1}:", "    continue")
            take_shuffled(depth)
        emit(depth)

    def flush(depth: int, word: str) -> None:
        if tail is None:
            return
        out.add(depth, f"{word} buffer:")
        take_batch(depth + 1) if tail == "batch" else take_shuffled(depth + 1)
        emit(depth + 1)

    def at_end(depth: int) -> None:
        out.add(depth, "state.feed = EMPTY")
        flush(depth, "while" if loop else "if")
        out.add(depth, "break" if loop and has_flat else "pass" if loop else "return END")

    out.add(0, f"def make(step, state, counts, upstream, context{', ' if names else ''}{names}):")
    # As default arguments they are local names, which Python reads fastest.
    quick = ", ".join(f"{name}={name}" for name in ["state", "counts", "buffer", *(f"f{index}" for index in range(len(kinds)))])
    out.add(1, "buffer = state.buffer", f"def {'loop(owner, ' if loop else 'pull('}{quick}):")
    depth = 2
    if loop:
        out.add(2, "halt = owner.halt", "slot = ACTIVE.slot", "before = slot[0]", "slot[0] = context", "try:")
        depth = 3
    elif drops:
        out.add(2, "idle = 0")
    if has_flat:
        out.add(depth, "while True:")
        depth += 1
        out.add(depth, "for x in state.current:", owner=flat)
        if flat < len(kinds) - 1:
            out.add(depth + 1, f"counts[{places[flat]}] += 1")
        if tagged:
            out.add(depth + 1, "s = state.current_sources")
        body(depth + 1, flat + 1, body_end)
        finish(depth + 1)
        out.add(depth, "state.current = EMPTY")
    if from_feed:
        out.add(depth, "for x in state.feed:", owner=SOURCE)
        out.add(depth + 1, "counts[0] += 1")
    else:
        if not has_flat:
            out.add(depth, "while True:")
            depth += 1
        out.add(depth, "x = upstream.pull()", "if x.__class__ is Signal:")
        flush(depth + 1, "if x is END and")
        out.add(depth + 1, "return x")
        out.add(depth, "counts[0] += 1")
        if tagged:
            out.add(depth, "s = upstream.sources")
    inner = depth + 1 if from_feed else depth
    body(inner, 0, min(flat, body_end))
    if has_flat:
        out.add(inner, "state.current = iter(x)", owner=flat)
        if tagged:
            out.add(inner, "state.current_sources = s")
        if from_feed:
            out.add(inner, "break")
            out.add(depth, "else:")
            at_end(depth + 1)
        if not loop:
            out.add(depth, "idle += 1", f"if idle > {MAX_IDLE_STEPS}:", "    return BUSY")
    else:
        finish(inner)
        if from_feed:
            at_end(depth)
    if loop:
        out.add(3, "slot[0] = before", "owner.ended()")
        out.add(
            2,
            "except GeneratorExit:",
            "    if slot[0] is context:",
            "        slot[0] = before",
            "    raise",
            "except BaseException as error:",
            "    slot[0] = before",
            "    raise owner.failed(error)",
        )
    out.add(1, f"return {'loop' if loop else 'pull'}")
    return compile("\n".join(out.lines), "<flowrl step>", "exec"), out.owner


class FusedStep:
    """A piece of a chain over `upstream` (a stage, or None where `feed` is a Python iterable).

    `pull()` gives an item or a signal; `loop(stream)`, only over a feed, is the generator that a `for` statement runs: it holds
    the stream, and tells it of its end and of errors.
    """

    __slots__ = ("counts", "exits", "loop", "pull", "seed", "sources", "state", "upstream")

    pull: Callable[[], Any]
    loop: Callable[[Any], Iterator[Any]] | None

    def __init__(
        self,
        piece: Sequence[_Primitive],
        labels: Sequence[str],
        upstream: Any = None,
        feed: Any = EMPTY,
        feed_label: str = "",
        tagged: bool = False,
        rng: random.Random | None = None,
        context: Any = None,
        loops: bool = False,
    ) -> None:
        kinds = tuple(primitive.kind for primitive in piece)
        self.upstream = upstream
        self.sources: tuple[Any, ...] = ()
        self.state = StepState(feed, rng)
        places = count_places(kinds)
        self.counts = [0] * (places[-1] + 1 if places else 1)
        self.exits = {primitive.op: places[index] for index, primitive in enumerate(piece)}
        values = [primitive.value for primitive in piece]

        def build(loop: bool) -> Any:
            code, owner = _compile(kinds, upstream is None, tagged, loop)
            shown = {line: (feed_label, True) if index == SOURCE else (labels[piece[index].op], False) for line, index in owner.items()}
            scope = {
                "ACTIVE": ACTIVE,
                "BLOCKED": BLOCKED,
                "BUSY": BUSY,
                "EMPTY": EMPTY,
                "END": END,
                "PENDING": PENDING,
                "Signal": Signal,
                "_flowrl_labels": shown,
            }
            exec(code, scope)
            return scope["make"](self, self.state, self.counts, upstream, context, *values)  # type: ignore[operator]

        self.pull = build(loop=False)
        self.loop = build(loop=True) if upstream is None and loops else None

    @property
    def num_in(self) -> int:
        """Items taken from upstream so far."""
        return self.counts[0]

    @property
    def num_out(self) -> int:
        """Items handed on so far."""
        return self.counts[-1]

    @property
    def num_held(self) -> int:
        """Items parked here now."""
        return len(self.state.buffer)
