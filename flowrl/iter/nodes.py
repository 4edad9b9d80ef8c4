"""The plan as data: a closed set of frozen nodes, and the linear stages that a `Stage` node may hold.

A node knows its inputs, its parameters and the line of the plan that made it. It does nothing: `passes` says what is
wrong with a graph of nodes, `depict` how it looks, `naming` how it is called, and `compile` gives each kind its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
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
    "queue_of",
    "walk",
]

Weight: TypeAlias = "Fraction | Literal['*']"


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


def queue_of(node: Node) -> Any:
    """The queue that a node writes or reads, if it does."""
    if isinstance(node, Dequeue):
        return node.queue
    return node.stage.queue if isinstance(node, Stage) and isinstance(node.stage, Put) else None


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
