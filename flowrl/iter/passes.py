"""What can be known of a plan before it runs: what is wrong with it, which handles it names, and how it looks.

`check` raises `PlanError` for the first thing that is wrong; each message names the operator and the plan's line. What
concerns one operator alone is refused earlier, when the plan is built (`iterators`).
"""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from flowrl.errors import PlanError
from flowrl.graph.records import EdgeRecord, Flow, NodeRecord, PlanRecord
from flowrl.iter.handles import Handle, handles_in
from flowrl.iter.nodes import (
    Actors,
    Child,
    Dequeue,
    Duplicate,
    Gather,
    LocalSource,
    Map,
    Node,
    Put,
    Repartition,
    SelectShards,
    Shards,
    Shuffle,
    Stage,
    Union,
    is_parallel,
    label_of,
    name_of,
    operator_of,
    own_operator,
    parameters_of,
    short,
    walk,
)
from flowrl.iter.opening import shards_of
from flowrl.iter.queues import Queue, max_size

__all__ = ["check", "keeps_source", "named_handles", "record_of"]


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
        found = (
            node.queue
            if isinstance(node, Dequeue)
            else node.stage.queue
            if isinstance(node, Stage) and isinstance(node.stage, Put)
            else None
        )
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
        if isinstance(shared, Queue) and shared.other_end is None:
            read, written = (any(isinstance(node, Dequeue) is wanted for node in ends[key]) for wanted in (True, False))
            if written and not read:
                raise PlanError(
                    f"{label_of(first)} writes {shared!r} and nothing in the plan reads it, so it would fill and stop: add "
                    "Dequeue(queue) as a branch of "
                    "Concurrently, or use a queue.Queue for a thread of your own"
                )
            if read and not written:
                raise PlanError(
                    f"{label_of(first)} reads {shared!r} and nothing in the plan writes it, so it would wait for ever: add "
                    ".for_each(Enqueue(queue)) to "
                    "another branch, or use a queue.Queue for a thread of your own"
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


def named_handles(root: Node) -> list[Handle]:
    """The handles that nodes of the plan name, in the order of the plan; queues aside."""
    found: list[Handle] = []
    for node in walk(root):
        found.extend(_handles_of(node))
    return [handle for handle in dict.fromkeys(found) if not isinstance(handle, Queue)]


def _handles_of(node: Node) -> list[Handle]:
    if isinstance(node, Actors):
        return handles_in(list(node.actors))
    if isinstance(node, LocalSource):
        return handles_in(node.iterable)
    fn = getattr(node.stage, "fn", None) if isinstance(node, Stage) else None
    return handles_in(fn) if fn is not None else []


# --- how it looks -------------------------------------------------------------------------------------------------


def record_of(root: Node, flows: dict[Node, tuple[int | None, int | None, int | None]] | None = None, engine: str = "") -> PlanRecord:
    """The plan as records for a picture; `flows` has items (in, out, held) of each node of a running plan."""
    nodes = [node for node in walk(root) if not isinstance(node, SelectShards)]
    ids = {node: f"n{index}" for index, node in enumerate(nodes)}

    def shown(node: Node) -> Node:
        return shown(node.inputs[0]) if isinstance(node, SelectShards) else node

    records = tuple(_node_record(node, ids[node]) for node in nodes)
    edges = [
        EdgeRecord(ids[shown(above)], ids[node], "items", _edge_label(node, index), _flow(shown(above), node, flows))
        for node in nodes
        for index, above in enumerate(node.inputs)
    ]
    edges += _queue_edges(nodes, ids, flows)
    edges += _message_edges(nodes, ids)
    return PlanRecord(records, tuple(edges), ids[shown(root)], engine)


def _flow(above: Node, node: Node, flows: dict[Node, tuple[int | None, int | None, int | None]] | None) -> Flow | None:
    if flows is None:
        return None
    made = flows.get(above, (None, None, None))[1]
    taken, _, held = flows.get(node, (None, None, None))
    return Flow(made, taken, held)


def _edge_label(node: Node, index: int) -> str:
    if isinstance(node, Union) and len(set(node.weights)) > 1:
        return f"weight {node.weights[index]}"
    return ""


def _node_record(node: Node, node_id: str) -> NodeRecord:
    parallel = is_parallel(node)
    return NodeRecord(
        id=node_id,
        operator=operator_of(node),
        parameters=tuple(_parameters(node)),
        place="shards" if parallel else "driver",
        num_shards=len(shards_of(node)) if parallel else 0,
        line=node.line,
    )


_NAME_SHOWN_AS = {"from_range": "n", "from_items": "items", "from_iterable": "source"}


def _parameters(node: Node) -> Iterable[tuple[str, str]]:
    if isinstance(node, Stage):
        stage = node.stage
        fn = getattr(stage, "fn", None)
        if fn is not None:
            yield from parameters_of(fn) if own_operator(fn) else [("fn", name_of(fn))]
        if isinstance(stage, Map) and stage.max_concurrency > 1:
            yield ("max_concurrency", str(stage.max_concurrency))
        if isinstance(stage, Put):
            yield ("queue", _queue_name(stage.queue))
        if isinstance(stage, Shuffle):
            yield ("shuffle_buffer_size", str(stage.shuffle_buffer_size))
        if node.operator == "batch":
            yield ("n", str(stage.n))  # type: ignore[union-attr]
    elif isinstance(node, Shards | Actors | LocalSource):
        if node.name and node.name != node.operator:
            yield (_NAME_SHOWN_AS.get(node.operator, "name"), node.name)
        if isinstance(node, Shards) and node.repeat:
            yield ("repeat", "True")
    elif isinstance(node, Gather):
        if node.mode == "async":
            yield ("num_async", str(node.num_async))
        if node.batch_ms:
            yield ("batch_ms", short(node.batch_ms))
    elif isinstance(node, Repartition):
        yield ("num_partitions", str(node.num_partitions))
    elif isinstance(node, Duplicate):
        yield ("n", str(node.n))
    elif isinstance(node, Child):
        yield ("index", str(node.index))
    elif isinstance(node, Dequeue):
        yield ("queue", _queue_name(node.queue))
    elif isinstance(node, Union):
        yield ("mode", "round_robin" if node.deterministic else "async")
        if node.outputs is not None:
            yield ("output_indexes", str(sorted(node.outputs)))


def _queue_name(shared: Any) -> str:
    return (
        repr(shared)
        if isinstance(shared, Queue)
        else f"{type(shared).__module__}.{type(shared).__name__}(maxsize={shared.maxsize})"
        if isinstance(shared, queue.Queue)
        else short(shared)
    )


def _queue_edges(
    nodes: list[Node], ids: dict[Node, str], flows: dict[Node, tuple[int | None, int | None, int | None]] | None
) -> list[EdgeRecord]:
    writers = [(node, node.stage.queue) for node in nodes if isinstance(node, Stage) and isinstance(node.stage, Put)]
    readers = [(node, node.queue) for node in nodes if isinstance(node, Dequeue)]
    return [
        EdgeRecord(ids[writer], ids[reader], "queue", _queue_name(written), _queue_flow(writer, reader, written, flows))
        for writer, written in writers
        for reader, read in readers
        if written is read
    ]


def _queue_flow(
    writer: Node, reader: Node, shared: Any, flows: dict[Node, tuple[int | None, int | None, int | None]] | None
) -> Flow | None:
    if flows is None:
        return None
    none = (None, None, None)
    held = shared.qsize() if not isinstance(shared, Queue) or shared.is_open else None
    return Flow(flows.get(writer, none)[1], flows.get(reader, none)[1], held)


def _message_edges(nodes: list[Node], ids: dict[Node, str]) -> list[EdgeRecord]:
    """What an operator that declares `sends = "weights"` sends to the sources that its handles stand for."""
    edges = []
    for node in nodes:
        fn = getattr(node.stage, "fn", None) if isinstance(node, Stage) else None
        message = getattr(fn, "sends", None)
        if isinstance(message, str):
            targets = set(handles_in(fn))
            edges += [
                EdgeRecord(ids[node], ids[source], "message", message)
                for source in nodes
                if isinstance(source, Actors | LocalSource | Shards) and targets & set(_handles_of(source))
            ]
    return edges
