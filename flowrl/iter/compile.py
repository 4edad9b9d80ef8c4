"""What each kind of node means: from a graph of nodes to stage objects, a node that several branches share once.

A chain of linear stages becomes fused steps, every other node a small stage object of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flowrl.iter import opening
from flowrl.iter.chain import build_chain
from flowrl.iter.fuse import LinearOp
from flowrl.iter.gathers import AsyncGather, BarrierGather
from flowrl.iter.naming import label_of, own_operator
from flowrl.iter.nodes import (
    Child,
    Combine,
    Dequeue,
    Duplicate,
    Filter,
    Flatten,
    Gather,
    LinearStage,
    LocalSource,
    Map,
    Node,
    Put,
    Stage,
    Transform,
    Union,
    walk,
)
from flowrl.iter.ports import DequeueStage, PutStage
from flowrl.iter.sources import Feed, Polled, PolledStage
from flowrl.iter.unions import ChildStage, DuplicateStage, LocalRoundRobin, UnionStage

__all__ = ["build"]


def build(run: Any, node: Node) -> Any:
    """The stage object whose items are the node's."""
    if node in run.stages:
        return run.stages[node][0]
    chain: list[Stage] = []
    base = node
    while isinstance(base, Stage):
        chain.append(base)
        base = base.input
    if chain or isinstance(base, LocalSource):
        return _build_chain(run, chain[::-1], base)
    made = _make(run, base)
    return _record(run, base, made)


def _record(run: Any, node: Node, stage: Any, place: int = -1) -> Any:
    run.stages[node] = (stage, place)
    if stage not in run.objects:
        run.objects.append(stage)
        close = getattr(stage, "close", None)
        if close is not None:
            run.stack.callback(close)
    return stage


def _build_chain(run: Any, chain: list[Stage], base: Node) -> Any:
    polled = _polled(base)
    local = isinstance(base, LocalSource) and polled is None
    if polled is not None:
        upstream: Any = PolledStage(polled, label_of(base))
        run.polled.append(_record(run, base, upstream))
    else:
        upstream = None if local else build(run, base)
    feed = Feed(_own_copy(base.iterable)) if local and isinstance(base, LocalSource) else None
    ops = [LinearOp(_fresh(run.seeded(node)), label_of(node)) for node in chain]
    above = [*walk(base), *chain]
    waits = any(_may_wait(node) for node in above) or (run.has_branches and any(_may_drop(node) for node in above))
    made, exits = build_chain(
        ops,
        upstream,
        feed,
        label_of(base),
        run.metrics,
        tagged=run.tagged and not local,
        loops=True,
        waits=waits,
        special=partial(_put_stage, run),
    )
    if local:
        _record(run, base, made[0], 0)
        run.feeds.append(made[0])
    for node, (index, place) in zip(chain, exits):
        _record(run, node, made[index], place)
    return made[-1] if made else upstream


def _polled(node: Node) -> Polled | None:
    """The source, where it is one in the driver that may have nothing yet."""
    return node.iterable if isinstance(node, LocalSource) and isinstance(node.iterable, Polled) else None


def _own_copy(fn: Any) -> Any:
    return copy.deepcopy(fn) if own_operator(fn) else fn


def _fresh(stage: LinearStage) -> LinearStage:
    """The stage as when the plan was built: flowrl's own operators anew, a user's callable as it is."""
    if isinstance(stage, Map | Combine | Filter | Transform) and own_operator(stage.fn):
        fn = copy.deepcopy(stage.fn)
        return Map(fn, stage.max_concurrency, stage.resources) if isinstance(stage, Map) else type(stage)(fn)
    return stage


def _put_stage(run: Any, op: LinearOp, upstream: Any) -> PutStage:
    assert isinstance(op.stage, Put)
    stage = PutStage(upstream, run.ports[id(op.stage.queue)], op.label)
    run.meeting.append(stage)
    return stage


def _make(run: Any, node: Node) -> Any:
    return _MEANING[type(node)](run, node)


def _make_gather(run: Any, node: Gather) -> Any:
    shards = opening.open_shards(run, node)
    if node.mode == "async":
        gather: Any = AsyncGather(run, shards, label_of(node), node.num_async)
    else:
        gather = BarrierGather(run, shards, label_of(node), lists=node.mode == "lists")
    run.gathers.append(gather)
    return gather


def _make_union(run: Any, node: Union) -> Any:
    members = [build(run, member) for member in node.members]
    plain = node.deterministic and node.outputs is None and all(weight == 1 for weight in node.weights)
    if plain and not any(_may_wait(above) for above in walk(node)):
        return LocalRoundRobin(run, members)
    return UnionStage(run, members, node.weights, node.deterministic, node.outputs)


def _make_duplicate(run: Any, node: Duplicate) -> DuplicateStage:
    return DuplicateStage(build(run, node.input), run.tagged)


def _make_child(run: Any, node: Child) -> ChildStage:
    stage = ChildStage(build(run, node.input), label_of(node))
    run.meeting.append(stage)
    return stage


def _make_dequeue(run: Any, node: Dequeue) -> DequeueStage:
    stage = DequeueStage(run.ports[id(node.queue)], node.check, label_of(node))
    run.meeting.append(stage)
    run.dequeues.append(stage)
    return stage


def _may_wait(node: Node) -> bool:
    """Whether its stage can be PENDING or BLOCKED."""
    return (
        isinstance(node, Gather | Dequeue | Child) or (isinstance(node, Stage) and isinstance(node.stage, Put)) or _polled(node) is not None
    )


def _may_drop(node: Node) -> bool:
    """Whether it can take many items without handing on any."""
    return isinstance(node, Stage) and isinstance(node.stage, Filter | Combine | Flatten)


_MEANING: Mapping[type[Node], Callable[[Any, Any], Any]] = {
    Gather: _make_gather,
    Union: _make_union,
    Duplicate: _make_duplicate,
    Child: _make_child,
    Dequeue: _make_dequeue,
}
