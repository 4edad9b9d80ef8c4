"""How a plan looks: nodes to graph records, plain or with what has passed each edge of a run so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowrl.graph.records import EdgeRecord, Flow, NodeRecord, PlanRecord
from flowrl.iter.flows import UNKNOWN, Counts
from flowrl.iter.handles import handles_in
from flowrl.iter.naming import name_of, operator_of, own_operator, parameters_of, short
from flowrl.iter.nodes import (
    Actors,
    Batch,
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
    queue_of,
    walk,
)
from flowrl.iter.opening import shards_of
from flowrl.iter.passes import handles_of
from flowrl.iter.queue_worker import QueueWorker
from flowrl.iter.queues import Queue, queue_name

__all__ = ["record_of"]

Flows = dict[Node, Counts]


def record_of(root: Node, flows: Flows | None = None, engine: str = "") -> PlanRecord:
    """The plan as records for a picture; `flows` has items (in, out, held) of each node of a running plan."""
    nodes = [node for node in walk(root) if not isinstance(node, SelectShards)]
    ids = {node: f"n{index}" for index, node in enumerate(nodes)}

    learners = {worker: f"n{len(nodes) + index}" for index, worker in enumerate(_queue_workers(nodes))}

    records = [_node_record(node, ids[node]) for node in nodes]
    records += [NodeRecord(name, type(worker).__name__, (), "learner", 0, "") for worker, name in learners.items()]
    edges = [
        EdgeRecord(ids[_shown(above)], ids[node], "items", _edge_label(node, above, index), _flow(_shown(above), node, index, flows))
        for node in nodes
        for index, above in enumerate(node.inputs)
    ]
    edges += _queue_edges(nodes, ids, flows)
    edges += _learner_edges(nodes, ids, learners, flows)
    edges += _message_edges(nodes, ids, learners)
    return PlanRecord(tuple(records), tuple(edges), ids[_shown(root)], engine)


def _shown(node: Node) -> Node:
    """The node that stands for it: a selection of shards is a label on the edge below."""
    while isinstance(node, SelectShards):
        node = node.input
    return node


def _flow(above: Node, node: Node, index: int, flows: Flows | None) -> Flow | None:
    if flows is None:
        return None
    counts = flows.get(node, UNKNOWN)
    return Flow(flows.get(above, UNKNOWN).out, counts.taken[index % len(counts.taken)], counts.held)


def _edge_label(node: Node, above: Node, index: int) -> str:
    if isinstance(node, Union) and any(weight != 1 for weight in node.weights):
        return f"weight {node.weights[index]}"
    if isinstance(above, SelectShards) and operator_of(node) != "get_shard":
        return f"shards {list(above.indices)}"
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
        if isinstance(stage, Map) and stage.resources:
            yield ("resources", short(dict(stage.resources)))
        if isinstance(stage, Put):
            yield ("queue", queue_name(stage.queue))
        if isinstance(stage, Shuffle):
            yield ("shuffle_buffer_size", str(stage.shuffle_buffer_size))
        if isinstance(stage, Batch):
            yield ("n", str(stage.n))
    elif isinstance(node, Shards | Actors | LocalSource):
        if node.name and node.name != node.operator:
            yield (_NAME_SHOWN_AS.get(node.operator, "name"), node.name)
        if isinstance(node, Shards) and node.repeat:
            yield ("repeat", "True")
    elif isinstance(node, Gather):
        if node.operator == "get_shard" and isinstance(node.input, SelectShards):
            yield ("shard", str(node.input.indices[0]))
        if node.mode == "async":
            yield ("num_async", str(node.num_async))
        if node.batch_ms:
            yield ("batch_ms", short(node.batch_ms))
    elif isinstance(node, Repartition):
        yield ("num_partitions", str(node.num_partitions))
        if node.batch_ms:
            yield ("batch_ms", short(node.batch_ms))
    elif isinstance(node, Duplicate):
        yield ("n", str(node.n))
    elif isinstance(node, Child):
        yield ("index", str(node.index))
    elif isinstance(node, Dequeue):
        yield ("queue", queue_name(node.queue))
    elif isinstance(node, Union):
        yield ("mode", "round_robin" if node.deterministic else "async")
        if node.outputs is not None:
            yield ("output_indexes", str(sorted(node.outputs)))


def _queue_workers(nodes: list[Node]) -> list[QueueWorker]:
    """The learners whose queues the plan writes or reads."""
    workers = [getattr(queue_of(node), "other_end", None) for node in nodes]
    return list(dict.fromkeys(worker for worker in workers if worker is not None))


def _queue_edges(nodes: list[Node], ids: dict[Node, str], flows: Flows | None) -> list[EdgeRecord]:
    writers = [node for node in nodes if isinstance(node, Stage) and isinstance(node.stage, Put)]
    readers = [node for node in nodes if isinstance(node, Dequeue)]
    return [
        EdgeRecord(ids[writer], ids[reader], "queue", queue_name(queue_of(writer)), _queue_flow(writer, reader, queue_of(writer), flows))
        for writer in writers
        for reader in readers
        if queue_of(writer) is queue_of(reader)
    ]


def _learner_edges(nodes: list[Node], ids: dict[Node, str], learners: dict[QueueWorker, str], flows: Flows | None) -> list[EdgeRecord]:
    """From the nodes that feed a learner to it, and from it to those that read what it gives."""
    edges = []
    for node in nodes:
        shared = queue_of(node)
        worker = getattr(shared, "other_end", None)
        if worker is None:
            continue
        if shared is worker.inqueue:
            ends, flow = (ids[node], learners[worker]), _queue_flow(node, None, shared, flows)
        else:
            ends, flow = (learners[worker], ids[node]), _queue_flow(None, node, shared, flows)
        edges.append(EdgeRecord(*ends, "queue", queue_name(shared), flow))
    return edges


def _queue_flow(writer: Node | None, reader: Node | None, shared: Any, flows: Flows | None) -> Flow | None:
    """What has passed a queue; what a learner took or put is what is not in the queue any more, or was there."""
    if flows is None:
        return None
    held = shared.qsize() if not isinstance(shared, Queue) or shared.is_open else None
    put = flows.get(writer, UNKNOWN).out if writer is not None else None
    taken = flows.get(reader, UNKNOWN).out if reader is not None else None
    if writer is None and held is not None and taken is not None:
        put = taken + held
    if reader is None and held is not None and put is not None:
        taken = put - held
    return Flow(put, taken, held)


def _message_edges(nodes: list[Node], ids: dict[Node, str], learners: dict[QueueWorker, str]) -> list[EdgeRecord]:
    """What an operator that declares `sends = "weights"` sends to the sources that its handles stand for.

    To those that its items come from, through queues and learners too, where it holds no handle. It has the weights of a learner
    that it holds.
    """
    edges = []
    for node in nodes:
        fn = getattr(node.stage, "fn", None) if isinstance(node, Stage) else None
        message = getattr(fn, "sends", None)
        if isinstance(message, str):
            held = set(handles_in(fn))
            targets = [source for source in nodes if isinstance(source, Actors | LocalSource | Shards) and held & set(handles_of(source))]
            edges += [EdgeRecord(learners[worker], ids[node], "message", message) for worker in learners if worker in held]
            sources = targets if held else [source for source in _sources_of(node, nodes) if isinstance(source, Actors)]
            edges += [EdgeRecord(ids[node], ids[source], "message", message) for source in sources]
    return edges


def _sources_of(node: Node, nodes: list[Node]) -> list[Node]:
    """The sources that a node's items come from, each once, also through queues and learners."""
    seen: set[Node] = set()
    todo, found = [node], []
    while todo:
        above = todo.pop()
        if above in seen:
            continue
        seen.add(above)
        if isinstance(above, Actors | LocalSource | Shards):
            found.append(above)
        todo.extend(above.inputs)
        if isinstance(above, Dequeue):
            worker = getattr(above.queue, "other_end", None)
            fed_by = above.queue if worker is None else worker.inqueue
            todo.extend(other for other in nodes if not isinstance(other, Dequeue) and queue_of(other) is fed_by)
    return [source for source in nodes if source in found]
