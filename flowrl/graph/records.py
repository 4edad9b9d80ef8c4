"""What a plan looks like to a picture: plain records, resolved to text. Knows nothing of plans, runs or engines.

`flowrl.iter.passes` makes these records; everything else in this package only reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["EdgeKind", "EdgeRecord", "Flow", "NodeRecord", "Place", "PlanRecord"]

Place = Literal["driver", "shards", "learner"]
EdgeKind = Literal["items", "queue", "message"]


@dataclass(frozen=True, slots=True)
class Flow:
    """What has passed an edge of a running plan so far: items in, items out, items held between. None: not known."""

    items_in: int | None
    items_out: int | None
    held: int | None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One operator: where it runs and which line of the plan made it."""

    id: str
    """`"n0"`, `"n1"`, ... in the order of the plan, sources first."""
    operator: str
    """`"for_each"`, `"gather_async"`, `"TrainOneStep"`."""
    parameters: tuple[tuple[str, str], ...]
    """`(("fn", "double @ plan.py:3"), ("num_async", "2"))`."""
    place: Place
    num_shards: int
    """How many shards it runs in; 0 outside shards."""
    line: str
    """`"plan.py:12"`; empty where it is not known."""


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """What moves from one operator to another: items, items through a queue, or a message (weights, priorities)."""

    source: str
    target: str
    kind: EdgeKind = "items"
    label: str = ""
    flow: Flow | None = None


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A whole plan. `root` is the node whose items the user sees; `engine` is empty before it runs."""

    nodes: tuple[NodeRecord, ...]
    edges: tuple[EdgeRecord, ...]
    root: str
    engine: str = ""
