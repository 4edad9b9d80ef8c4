"""What can be known of a plan before it runs: what is wrong with it, where the source of an item is lost, which handles it names.

`check` raises `PlanError` for the first thing that is wrong; each message names the operator and the plan's line. What
concerns one operator alone is refused earlier, when the plan is built (`iterators`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from flowrl.errors import PlanError
from flowrl.iter.handles import Handle, handles_in
from flowrl.iter.naming import label_of
from flowrl.iter.nodes import (
    Actors,
    Child,
    Dequeue,
    Duplicate,
    Gather,
    LocalSource,
    Node,
    Repartition,
    Stage,
    Union,
    is_parallel,
    queue_of,
    walk,
)
from flowrl.iter.opening import shards_of
from flowrl.iter.queue_worker import QueueWorker
from flowrl.iter.queues import Queue, max_size

__all__ = ["check", "handles_of", "keeps_source", "named_handles"]


# --- what is wrong ------------------------------------------------------------------------------------------------


def check(root: Node) -> None:
    """Raise `PlanError` for the first thing that is known to be wrong."""
    if is_parallel(root):
        raise PlanError(
            f"the plan ends in {label_of(root)}, whose items never leave their shards: end it with gather_sync(), gather_async(), "
            "batch_across_shards() or get_shard(i)"
        )
    nodes = walk(root)
    _check_consumers(nodes)
    _check_shards(nodes)
    _check_queues(nodes)


def _check_consumers(nodes: list[Node]) -> None:
    consumers: defaultdict[Node, list[Node]] = defaultdict(list)
    for node in nodes:
        for above in node.inputs:
            consumers[above].append(node)
    children: dict[tuple[Node, int], Node] = {}
    for node in nodes:
        if isinstance(node, Child):
            twin = children.setdefault((node.input, node.index), node)
            readers = [*consumers[node], *(consumers[twin] if twin is not node else ())]
            if len(readers) > 1 or twin is not node:
                raise PlanError(
                    f"child {node.index} of {label_of(node.input)} is consumed twice, by {_names(readers)}: each child has one consumer, "
                    "duplicate(n) with a larger n"
                )
        elif len(consumers[node]) > 1 and not is_parallel(node) and not isinstance(node, Duplicate):
            raise PlanError(
                f"{label_of(node)} feeds {len(consumers[node])} consumers in one plan, {_names(consumers[node])}: each would get a "
                "part of its "
                "items. Use duplicate(n) and give each consumer a child"
            )


def _names(nodes: Iterable[Node]) -> str:
    return " and ".join(label_of(node) for node in nodes)


def _check_shards(nodes: list[Node]) -> None:
    readers: dict[tuple[Node, int], Node] = {}
    for node in nodes:
        if isinstance(node, Gather | Repartition):
            for plan in shards_of(node.input):
                other = readers.setdefault((plan.source, plan.position), node)
                if other is not node or sum((p.source, p.position) == (plan.source, plan.position) for p in shards_of(node.input)) > 1:
                    raise PlanError(
                        f"shard {plan.position} of {label_of(plan.source)} feeds two consumers in one plan, "
                        f"{_names(dict.fromkeys((other, node)))}: "
                        "each would get a part of its items. Use duplicate(n) after one gather, or select_shards() to read different shards"
                    )


def _check_queues(nodes: list[Node]) -> None:
    ends: defaultdict[int, list[Node]] = defaultdict(list)
    queues: dict[int, Any] = {}
    for node in nodes:
        found = queue_of(node)
        if found is not None:
            ends[id(found)].append(node)
            queues[id(found)] = found
    for key, shared in queues.items():
        first = ends[key][0]
        if max_size(shared) < 1:
            raise PlanError(
                f"{label_of(first)} has a queue without a bound: a slow reader would fill the memory. Give it a size, such as "
                "fl.Queue(16) or "
                "queue.Queue(maxsize=16)"
            )
        if isinstance(shared, Queue) and shared.other_end is not None:
            _check_learner(first, shared.other_end, set(queues))
        elif isinstance(shared, Queue) and not shared.is_open:
            read, written = (any(isinstance(node, Dequeue) is wanted for node in ends[key]) for wanted in (True, False))
            if written and not read:
                raise PlanError(
                    f"{label_of(first)} writes {shared!r} and nothing in the plan reads it, so it would fill and stop: add "
                    "Dequeue(queue) as a branch of "
                    "Concurrently, or, for a thread of your own, open the queue yourself (`with queue.open():`)"
                )
            if read and not written:
                raise PlanError(
                    f"{label_of(first)} reads {shared!r} and nothing in the plan writes it, so it would wait for ever: add "
                    ".for_each(Enqueue(queue)) to "
                    "another branch, or, for a thread of your own, open the queue yourself (`with queue.open():`)"
                )


def _check_learner(node: Node, worker: QueueWorker, queues: set[int]) -> None:
    """A learner that the run opens is fed by the plan, and what it gives is read by the plan."""
    kind = type(worker).__name__
    if not worker.is_open and id(worker.outqueue) not in queues:
        raise PlanError(
            f"{label_of(node)} feeds a {kind} whose outqueue nothing in the plan reads, so it would fill and stop: add "
            "Dequeue(learner.outqueue, check=learner.is_alive) as a branch of Concurrently"
        )
    if not worker.is_open and id(worker.inqueue) not in queues:
        raise PlanError(
            f"{label_of(node)} reads what a {kind} gives, and nothing in the plan feeds it, so it would wait for ever: add "
            ".for_each(Enqueue(learner.inqueue)) to another branch of Concurrently"
        )


# --- where an item's source is known ------------------------------------------------------------------------------


def keeps_source(node: Node, every: bool) -> Node | None:
    """None where each item of `node` has a known source (`every`: one or more); else the node where it is lost."""
    while True:
        if isinstance(node, Gather):
            return node if node.mode == "lists" and not every else _lost_in_shards(node.input)
        if isinstance(node, Stage):
            fn = getattr(node.stage, "fn", None)
            merges = node.operator == "batch" or getattr(fn, "merges_items", False)
            if node.operator == "transform" or (merges and not every):
                return node
            node = node.input
        elif isinstance(node, Child | Duplicate):
            node = node.input
        elif isinstance(node, Union):
            return next((lost for member in node.members if (lost := keeps_source(member, every)) is not None), None)
        else:
            return node


def _lost_in_shards(node: Node) -> Node | None:
    return next((above for above in walk(node) if isinstance(above, Repartition)), None)


# --- handles ------------------------------------------------------------------------------------------------------


def named_handles(root: Node) -> dict[Handle, Node]:
    """The handles that nodes of the plan name, each with the first node that does, in the order of the plan; queues aside."""
    found: dict[Handle, Node] = {}
    for node in walk(root):
        for handle in handles_of(node):
            if not isinstance(handle, Queue):
                found.setdefault(handle, node)
    return found


def handles_of(node: Node) -> list[Handle]:
    """The handles that one node names."""
    if isinstance(node, Actors):
        return handles_in(list(node.actors))
    if isinstance(node, LocalSource):
        return handles_in(node.iterable)
    shared = queue_of(node)
    if isinstance(shared, Queue) and shared.other_end is not None:
        return [shared.other_end]
    fn = getattr(node.stage, "fn", None) if isinstance(node, Stage) else None
    return handles_in(fn) if fn is not None else []
