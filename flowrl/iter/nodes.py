"""The plan as data: a closed set of frozen nodes, and the linear stages that a `Stage` node may hold.

A node knows its inputs, its parameters and the line of the plan that made it. It does nothing: `passes` says what is
wrong with a graph of nodes and how it looks, `run` gives each kind its meaning.
"""

from __future__ import annotations

import functools
import os
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, TypeAlias

__all__ = [
    "Actors",
    "Batch",
    "Child",
    "Combine",
    "Dequeue",
    "Duplicate",
    "Filter",
    "Flatten",
    "Gather",
    "LinearStage",
    "LocalSource",
    "Map",
    "Node",
    "Put",
    "Repartition",
    "SelectShards",
    "ShardUnion",
    "Shards",
    "Shuffle",
    "Stage",
    "Transform",
    "Union",
    "Weight",
    "ZipSource",
    "is_parallel",
    "label_of",
    "name_of",
    "own_operator",
    "plan_line",
    "short",
    "walk",
]

Weight: TypeAlias = "Fraction | Literal['*']"

PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"
PLANS = f"{PACKAGE}algorithms{os.sep}"


@functools.cache
def _is_plan_file(filename: str) -> bool:
    return not filename.startswith(PACKAGE) or filename.startswith(PLANS)


def _is_of_a_plan(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    if filename == "<string>":  # a user's exec, or what `dataclass` wrote for one of flowrl's operators
        return not frame.f_globals.get("__name__", "").startswith("flowrl.")
    return _is_plan_file(filename)


def plan_line() -> str:
    """`"plan.py:12"`: the innermost line that is not flowrl's own, a prebuilt plan's line counting as a plan's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _is_of_a_plan(frame):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def own_operator(fn: object) -> bool:
    """Whether `fn` is one of flowrl's own operators: each run works on a copy of those, and on a user's callable as it is."""
    return type(fn).__module__.partition(".")[0] == "flowrl"


def _code_of(fn: Any) -> CodeType | None:
    code = getattr(fn, "__code__", None) or getattr(getattr(type(fn), "__call__", None), "__code__", None)  # noqa: B004
    return code if isinstance(code, CodeType) else None


def name_of(fn: Any) -> str:
    """How a function is shown: `name @ file.py:line`; an operator by its class, with its parameters.

    >>> name_of(len)
    'len'
    """
    if isinstance(fn, functools.partial):
        return f"partial({name_of(fn.func)})"
    if own_operator(fn):
        shown = ", ".join(f"{name}={value}" for name, value in parameters_of(fn))
        return f"{type(fn).__name__}({shown})"
    inner = getattr(fn, "__wrapped__", fn)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    name = name.rpartition("<locals>.")[2]
    code = _code_of(inner)
    return f"{name} @ {Path(code.co_filename).name}:{code.co_firstlineno}" if code else name


def parameters_of(operator: Any) -> tuple[tuple[str, str], ...]:
    """An operator's fields as text, less the handles in it (they are edges of the picture) and what it keeps for itself."""
    if not is_dataclass(operator):
        return ()
    shown = []
    for field in fields(operator):
        value = getattr(operator, field.name, None)
        if field.init and field.repr and not hasattr(value, "handle_id"):
            shown.append((field.name, name_of(value) if callable(value) else short(value)))
    return tuple(shown)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = 80
        self.maxlong = 40

    def repr_ndarray(self, x: Any, level: int) -> str:
        return f"array(shape={x.shape}, dtype={x.dtype})"


_SHORT = _Short()


def short(value: object) -> str:
    """A value in at most about 80 characters, whatever it is; never an error.

    >>> short(list(range(100)))
    '[0, 1, 2, 3, 4, 5, ...]'
    """
    try:
        text = _SHORT.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
    return text if len(text) <= 90 else text[:87] + "..."


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, weakref_slot=True)
class Node:
    """What every kind has: the plan's line that made it."""

    line: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose items it takes."""
        node = getattr(self, "input", None)
        return (node,) if node is not None else getattr(self, "members", ())


# --- linear stages: what a `Stage` holds --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Map:
    """`for_each`: one item in, one out."""

    fn: Callable[[Any], Any]
    max_concurrency: int = 1
    resources: Mapping[str, Any] | None = None

    @property
    def is_concurrent(self) -> bool:
        """Whether its calls are tasks outside the shard's actor."""
        return self.max_concurrency > 1 or self.resources is not None


@dataclass(frozen=True, eq=False, slots=True)
class Combine:
    """`combine`: for_each, then flatten."""

    fn: Callable[[Any], Any]


@dataclass(frozen=True, eq=False, slots=True)
class Filter:
    """`filter`: keeps the items for which `fn` is true."""

    fn: Callable[[Any], Any]


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """`batch`: lists of n items, the last one shorter."""

    n: int


@dataclass(frozen=True, eq=False, slots=True)
class Flatten:
    """`flatten`: the elements of each item, one level deep."""


@dataclass(frozen=True, eq=False, slots=True)
class Shuffle:
    """`shuffle`, `local_shuffle`: a random one of a full buffer; each run draws a `seed` where none is given."""

    shuffle_buffer_size: int
    seed: int | None


@dataclass(frozen=True, eq=False, slots=True)
class Transform:
    """`transform`: `fn` makes an iterator of an iterator."""

    fn: Callable[[Iterator[Any]], Any]


@dataclass(frozen=True, eq=False, slots=True)
class ZipSource:
    """`zip_with_source_actor(s)`: (actor, item), or (all actors, item)."""

    every: bool


@dataclass(frozen=True, eq=False, slots=True)
class Put:
    """`for_each(Enqueue(queue))`: puts each item into the queue, then hands it on."""

    queue: Any


LinearStage: TypeAlias = Map | Combine | Filter | Batch | Flatten | Shuffle | Transform | ZipSource | Put


# --- the kinds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Shards(Node):
    """A source of n shards, each with an actor of its own: iterables, or factories of them."""

    factories: tuple[Any, ...]
    repeat: bool
    operator: str
    name: str


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Actors(Node):
    """A source over actors that exist already, or over handles of them."""

    actors: tuple[Any, ...]
    name: str
    operator: str = "from_actors"


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class LocalSource(Node):
    """A source in the driver: an iterable, or a factory of one."""

    iterable: Any
    name: str
    operator: str = "from_iterable"


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Stage(Node):
    """A linear stage, in the shards or in the driver: wherever its input is."""

    input: Node
    stage: LinearStage
    operator: str


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class SelectShards(Node):
    """Some of the shards of its input; they keep their index."""

    input: Node
    indices: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ShardUnion(Node):
    """The shards of all members side by side."""

    members: tuple[Node, ...]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Repartition(Node):
    """The items of all shards dealt anew over n actors."""

    input: Node
    num_partitions: int
    batch_ms: float


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Gather(Node):
    """From the shards into the driver: "sync" and "lists" are barriers, "async" takes what is ready."""

    input: Node
    mode: Literal["sync", "lists", "async"]
    batch_ms: float = 0
    num_async: int = 1
    operator: str


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Union(Node):
    """Several streams as one. `outputs`: the members whose items come out, None for all."""

    members: tuple[Node, ...]
    deterministic: bool
    weights: tuple[Weight, ...]
    outputs: frozenset[int] | None
    operator: str


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Duplicate(Node):
    """One stream for n children."""

    input: Node
    n: int


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Child(Node):
    """One of the n streams of a `Duplicate`."""

    input: Node
    index: int


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Dequeue(Node):
    """The items of a queue, as long as `check` is true."""

    queue: Any
    check: Callable[[], bool] | None


def is_parallel(node: Node) -> bool:
    """Whether its items are still in the shards."""
    while isinstance(node, Stage):
        node = node.input
    return isinstance(node, Shards | Actors | SelectShards | ShardUnion | Repartition)


def walk(root: Node) -> list[Node]:
    """All nodes that `root` reaches, each once, inputs before their consumers."""
    seen: set[Node] = set()
    order: list[Node] = []
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((above, False) for above in reversed(node.inputs))
    return order


def operator_of(node: Node) -> str:
    """The name that the user typed: `for_each`, `gather_async`, `Concurrently`; an operator's class for `for_each(Operator())`."""
    if isinstance(node, Stage):
        fn = getattr(node.stage, "fn", None)
        if isinstance(node.stage, Put):
            return "Enqueue"
        return type(fn).__name__ if fn is not None and own_operator(fn) else node.operator
    names = {SelectShards: "select_shards", ShardUnion: "union", Repartition: "repartition", Duplicate: "duplicate", Child: "child"}
    return names.get(type(node)) or str(getattr(node, "operator", type(node).__name__))


def label_of(node: Node) -> str:
    """The node in an error: operator, what it holds, the plan's line.

    >>> label_of(Stage(line="plan.py:3", input=None, stage=Map(len), operator="for_each"))
    'for_each(len) at plan.py:3'
    """
    fn = getattr(node.stage, "fn", None) if isinstance(node, Stage) else None
    shared = getattr(node.stage if isinstance(node, Stage) else node, "queue", None)
    inside = name_of(fn) if fn is not None else short(shared) if shared is not None else getattr(node, "name", "")
    operator = node.operator if isinstance(node, Stage) and not isinstance(node.stage, Put) else operator_of(node)
    return f"{operator}({inside}) at {node.line}"
