"""Which nodes share a box in a picture: neighbours that run in the same shards or the same learner."""

from __future__ import annotations

from dataclasses import dataclass

from flowrl.graph.labels import place_title
from flowrl.graph.records import NodeRecord, Place, PlanRecord

__all__ = ["Group", "grouped", "picture_ids"]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that share a box, in the order of the plan; a node of the driver alone, which has none."""

    place: Place
    title: str
    nodes: tuple[NodeRecord, ...]


def grouped(plan: PlanRecord) -> list[Group]:
    """All nodes of the plan, neighbours in the same shards or learner together; messages do not make neighbours.

    >>> from flowrl.graph.records import EdgeRecord
    >>> source = NodeRecord("n0", "from_range", (), "shards", 2, "")
    >>> gather = NodeRecord("n1", "gather_sync", (), "driver", 0, "")
    >>> [group.title for group in grouped(PlanRecord((source, gather), (EdgeRecord("n0", "n1"),), "n1"))]
    ['shards ×2', 'driver']
    """
    place_of = {node.id: (node.place, node.num_shards) for node in plan.nodes}
    group_of = {node.id: node.id for node in plan.nodes}
    for edge in plan.edges:
        place = place_of[edge.source]
        if edge.kind != "message" and place == place_of[edge.target] and place[0] != "driver":
            kept, merged = group_of[edge.source], group_of[edge.target]
            group_of = {node: kept if group == merged else group for node, group in group_of.items()}
    members: dict[str, list[NodeRecord]] = {}
    for node in plan.nodes:
        members.setdefault(group_of[node.id], []).append(node)
    return [Group(nodes[0].place, place_title(nodes[0].place, nodes[0].num_shards), tuple(nodes)) for nodes in members.values()]


def picture_ids(plan: PlanRecord) -> dict[str, str]:
    """A name that every format can spell, for each node's id."""
    return {node.id: f"n{index}" for index, node in enumerate(plan.nodes)}
