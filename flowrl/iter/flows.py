"""What has passed each node of a running plan so far. Reading it moves nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flowrl.iter.nodes import Batch, Node, Shuffle, Stage

__all__ = ["UNKNOWN", "Counts", "flows_of"]

ASK_S = 1.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Items of one node: taken from each input, handed on, and held now. None: not known."""

    taken: tuple[int | None, ...]
    out: int | None
    held: int | None


UNKNOWN = Counts((None,), None, None)


def flows_of(run: Any, ask_shards: bool = True) -> dict[Node, Counts]:
    """The counts of every node: the driver's own, and those that the shards tell within a second."""
    flows: dict[Node, Counts] = {}
    for node, (stage, place) in run.stages.items():
        above = run.stages.get(node.inputs[0]) if isinstance(node, Stage) else None
        if place >= 0 and above is not None and above[0] is stage:  # two ops of one fused step
            num_in = stage.counts[above[1]]
        else:
            num_in = stage.num_in
        taken = getattr(stage, "taken", (num_in,))
        if place < 0:
            flows[node] = Counts(tuple(taken), stage.num_out, stage.num_held)
        else:
            flows[node] = Counts(tuple(taken), stage.counts[place], stage.num_held if _holds(node) else 0)
    if ask_shards:
        _add_shards(run, flows)
    return flows


def _holds(node: Node) -> bool:
    """Whether it is what holds the items that its fused step holds."""
    return isinstance(node, Stage) and isinstance(node.stage, Batch | Shuffle)


def _add_shards(run: Any, flows: dict[Node, Counts]) -> None:
    open_shards = [(plan, shard) for plan, shard in run.shard_plans if shard.slot >= 0]
    told = run.engine.peek([(shard.actor, "stream_counts", (shard.slot,)) for _, shard in open_shards], ASK_S)
    for (plan, _), rows in zip(open_shards, told):
        nodes: list[Node] = [stage for stage, _ in plan.stages]
        if rows is None:
            flows.update(dict.fromkeys([*nodes, plan.source], UNKNOWN))
            continue
        made = rows[0][0] if nodes else rows[-1][1]
        for node, (num_in, num_out, held) in [(plan.source, (None, made, None)), *zip(nodes, rows)]:
            flows[node] = _sum(flows.get(node), Counts((num_in,), num_out, held))


def _sum(known: Counts | None, more: Counts) -> Counts:
    if known is None:
        return more

    def add(a: int | None, b: int | None) -> int | None:
        return a + b if a is not None and b is not None else None

    return Counts((add(known.taken[0], more.taken[0]),), add(known.out, more.out), add(known.held, more.held))
