"""A plan as a networkx graph: whole texts, for questions that a picture does not answer."""

from __future__ import annotations

from dataclasses import asdict

import networkx as nx

from flowrl.graph.records import PlanRecord

__all__ = ["to_networkx"]


def to_networkx(plan: PlanRecord) -> nx.MultiDiGraph:
    """The plan as a graph: a node has its record's fields, an edge its `kind`, its `label` and the counts that are known.

    `root` and `engine` are attributes of the graph.

    >>> from flowrl.graph.records import EdgeRecord, NodeRecord
    >>> source = NodeRecord("n0", "from_range", (("n", "9"),), "shards", 2, "plan.py:3")
    >>> gather = NodeRecord("n1", "gather_sync", (), "driver", 0, "plan.py:4")
    >>> graph = to_networkx(PlanRecord((source, gather), (EdgeRecord("n0", "n1"),), root="n1"))
    >>> graph.nodes["n0"]["parameters"], list(graph.predecessors(graph.graph["root"]))
    ({'n': '9'}, ['n0'])
    """
    graph = nx.MultiDiGraph(root=plan.root, engine=plan.engine)
    for node in plan.nodes:
        graph.add_node(
            node.id,
            operator=node.operator,
            parameters=dict(node.parameters),
            place=node.place,
            num_shards=node.num_shards,
            line=node.line,
        )
    for edge in plan.edges:
        counts = asdict(edge.flow) if edge.flow else {}
        known = {name: count for name, count in counts.items() if count is not None}
        graph.add_edge(edge.source, edge.target, kind=edge.kind, label=edge.label, **known)
    return graph
