"""What has passed each node of a running plan so far: (items in, items out, items held). Reading it moves nothing."""

from __future__ import annotations

from typing import Any

from flowrl.iter.nodes import Node

__all__ = ["Counts", "flows_of"]

Counts = tuple[int | None, int | None, int | None]
ASK_S = 1.0


def flows_of(run: Any, ask_shards: bool = True) -> dict[Node, Counts]:
    """The counts of every node: the driver's own, and those that the shards tell within a second."""
    flows: dict[Node, Counts] = {}
    for node, (stage, place) in run.stages.items():
        out = stage.num_out if place < 0 or not hasattr(stage, "counts") else stage.counts[place]
        held = getattr(stage, "num_held", None)
        flows[node] = (stage.num_in, out, held)
    if ask_shards:
        _add_shards(run, flows)
    return flows


def _add_shards(run: Any, flows: dict[Node, Counts]) -> None:
    open_shards = [(plan, shard) for plan, shard in run.shard_plans if shard.slot >= 0]
    told = run.engine.peek([(shard.actor, "stream_counts", (shard.slot,)) for _, shard in open_shards], ASK_S)
    for (plan, _), rows in zip(open_shards, told):
        nodes: list[Node] = [stage for stage, _ in plan.stages]
        if rows is None:
            flows.update(dict.fromkeys([*nodes, plan.source], (None, None, None)))
            continue
        made = rows[0][0] if nodes else rows[-1][1]
        for node, (num_in, num_out, held) in [(plan.source, (None, made, None)), *zip(nodes, rows)]:
            flows[node] = _sum(flows.get(node), (num_in, num_out, held))


def _sum(known: Counts | None, more: Counts) -> Counts:
    if known is None:
        return more
    both = [a + b if a is not None and b is not None else None for a, b in zip(known, more)]
    return both[0], both[1], both[2]
