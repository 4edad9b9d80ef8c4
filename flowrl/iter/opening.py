"""How a run opens its streams: which shards a gather reads, the actors behind them, and what travels there.

Only what the plan reaches is started. A stage travels without the rest of the plan; what a worker cannot import is sent
by value, and where that fails the error names the module and the remedy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowrl.errors import ActorDiedError, PlanError
from flowrl.iter.fuse import LinearOp
from flowrl.iter.gathers import OpenShard
from flowrl.iter.handles import ActorHandle, Handle
from flowrl.iter.naming import label_of
from flowrl.iter.nodes import Actors, Gather, Map, Node, Repartition, SelectShards, Shards, ShardUnion, Stage, walk
from flowrl.iter.shard import NUM_SLOTS, ParallelIteratorWorker, Repartitioned, ShardSpec
from flowrl.iter.signals import with_note

__all__ = ["ShardPlan", "leave", "open_shards", "prepare", "shards_of"]

CLOSE_S = 2.0


@dataclass(frozen=True)
class ShardPlan:
    """One shard as the plan has it: where its items come from, and the stages over them, each with the shard's index there."""

    source: Node
    position: int
    index: int
    total: int
    stages: tuple[tuple[Stage, int], ...] = ()

    @property
    def where(self) -> str:
        """How an error calls it."""
        return f", shard {self.index} of {self.total}"


def shards_of(node: Node) -> list[ShardPlan]:
    """The shards of a parallel node, in shard order."""
    if isinstance(node, Shards | Actors | Repartition):
        if isinstance(node, Repartition):
            total = node.num_partitions
        else:
            total = len(node.factories if isinstance(node, Shards) else node.actors)
        return [ShardPlan(node, position, position, total) for position in range(total)]
    if isinstance(node, Stage):
        chain = []
        while isinstance(node, Stage):
            chain.append(node)
            node = node.input
        return [replace(plan, stages=(*plan.stages, *((stage, plan.index) for stage in reversed(chain)))) for plan in shards_of(node)]
    if isinstance(node, SelectShards):
        above = shards_of(node.input)
        return [above[index] for index in node.indices]
    assert isinstance(node, ShardUnion)
    members = [plan for member in node.members for plan in shards_of(member)]
    return [replace(plan, index=index, total=len(members)) for index, plan in enumerate(members)]


def prepare(run: Any, handles: Sequence[Handle]) -> None:
    """Have the engine ready for all that the run will start, before anything is started."""
    demands: list[Mapping[str, Any]] = []
    for handle in handles:
        demands.extend(getattr(handle, "demands", list)())
        if isinstance(handle, ActorHandle):
            demands.append(handle.resources or {})
    nodes = walk(run.root_node)
    needs_engine = any(isinstance(node, Gather) for node in nodes) or bool(demands)
    for node in nodes:
        if isinstance(node, Stage) and isinstance(node.stage, Map) and node.stage.resources:
            demands.append({**node.stage.resources, "task": True})
        if isinstance(node, Actors):
            for actor in node.actors:
                if not isinstance(actor, Handle) and not run.engine.owns(actor):
                    raise PlanError(
                        f"{label_of(node)} has {actor!r}, which does not live on {run.engine!r}: start the actors on the engine "
                        "that runs the "
                        "plan (`with fl.engine(...) as e: e.start(cls, ...)`), or give run(engine=...)"
                    )
    if needs_engine:
        run.engine.prepare(demands)
    run.reached = _reached_partitions(nodes)
    run.partition_streams = {}
    run.fed_by = {}


def _reached_partitions(nodes: list[Node]) -> dict[Node, tuple[int, ...]]:
    """Which partitions of each repartition the plan reads; the others do not take part."""
    reached: dict[Node, set[int]] = {}
    todo = [plan for node in nodes if isinstance(node, Gather) for plan in shards_of(node.input)]
    while todo:
        plan = todo.pop()
        if isinstance(plan.source, Repartition):
            if plan.source not in reached:
                todo.extend(shards_of(plan.source.input))
            reached.setdefault(plan.source, set()).add(plan.position)
    return {node: tuple(sorted(positions)) for node, positions in reached.items()}


def open_shards(run: Any, gather: Gather) -> list[OpenShard]:
    """The streams of all shards that a gather reads, open."""
    return _open(run, shards_of(gather.input), batch_ms=gather.batch_ms)


def _open(run: Any, plans: Sequence[ShardPlan], batch_ms: float = 0, partitions: tuple[int, ...] = ()) -> list[OpenShard]:
    engine = run.engine
    opened: list[OpenShard] = []
    for plan in plans:
        spec = ShardSpec(
            ops=[LinearOp(run.seeded(stage), label_of(stage), index) for stage, index in plan.stages],
            where=plan.where,
            label=label_of(plan.source),
            engine=engine,
            batch_ms=batch_ms,
            partitions=partitions,
        )
        actor, sources = _actor_of(run, plan, spec)
        opened.append(OpenShard(actor, lambda: None, sources, plan.where, -1, spec))
    _open_streams(run, opened)
    for shard in opened:
        shard.ask = _asker(engine, shard, batch_ms)
    run.shard_plans.extend(zip(plans, opened))
    return opened


def _actor_of(run: Any, plan: ShardPlan, spec: ShardSpec) -> tuple[Any, tuple[Any, ...]]:
    """The actor of a shard, and what `zip_with_source_actor` gives for it."""
    node, engine = plan.source, run.engine
    if isinstance(node, Actors):
        named = node.actors[plan.position]
        actor = named.live if isinstance(named, Handle) else named
        return actor, (named,)
    if isinstance(node, Shards):
        spec.source, spec.repeat = node.factories[plan.position], node.repeat
    else:
        assert isinstance(node, Repartition)
        spec.source = Repartitioned(_streams_above(run, node), run.reached[node].index(plan.position), node.batch_ms)
    actor = engine.start(ParallelIteratorWorker, None, False)
    run.stack.callback(engine.stop, actor)
    return actor, (actor,)


def _streams_above(run: Any, node: Repartition) -> list[tuple[Any, int, str]]:
    """The streams that the partitions of `node` share; opened once, before any partition may ask."""
    if node not in run.partition_streams:
        plans = shards_of(node.input)
        opened = _open(run, plans, partitions=run.reached[node])
        run.partition_streams[node] = [(shard.actor, shard.slot, f"{shard.spec.label}{shard.where}") for shard in opened]
        for plan in plans:
            run.fed_by[plan] = (node,)
    return run.partition_streams[node]  # type: ignore[no-any-return]


def _asker(engine: Any, shard: OpenShard, batch_ms: float) -> Any:
    """The function that asks the shard for its next answer; without an argument where that can be."""
    if batch_ms > 0:
        return lambda: engine.call(shard.actor, "next_batch", shard.slot)
    if shard.slot < NUM_SLOTS:
        return engine.asker(shard.actor, f"next_{shard.slot}")
    return lambda: engine.call(shard.actor, "next_of", shard.slot)


def _open_streams(run: Any, shards: Sequence[OpenShard]) -> None:
    """Open all streams at once, and again where a worker could not import a module that can be sent by value."""
    engine = run.engine
    left = list(shards)
    while left:
        calls = [engine.call(shard.actor, "open_stream", _pack(engine, shard.spec)) for shard in left]
        again = []
        for shard, call in zip(left, calls):
            try:
                shard.slot = engine.result(call)
            except ModuleNotFoundError as error:
                module = sys.modules.get(error.name or "")
                if module is None or not engine.ship_by_value(module):
                    raise PlanError(
                        f"{shard.spec.label}: a worker cannot import the module {error.name!r} that a function of the plan needs, "
                        "and it cannot be "
                        "sent by value. Install it where the workers run, or put its folder on their PYTHONPATH"
                    ) from error
                again.append(shard)
            except Exception as error:
                with_note(error, f"while {shard.spec.label}{shard.where} was opened")
                raise
        left = again


def _pack(engine: Any, spec: ShardSpec) -> bytes:
    try:
        return engine.dumps(spec)  # type: ignore[no-any-return]
    except Exception as error:
        guilty = spec.label
        for op in spec.ops:
            try:
                engine.dumps(op)
            except Exception:
                guilty = op.label
                break
        raise PlanError(
            f"{guilty} cannot travel to a shard: {type(error).__name__}: {error}. Make what cannot be pickled (a lock, a socket, an "
            "open file) "
            "inside the function, in the shard"
        ) from error


def leave(run: Any) -> None:
    """Leave the actors that go on: what they made for this run and was not handed out is dropped and counted.

    All are asked at once and waited for once; an actor that is about to be stopped with the run is not waited for.
    """
    engine = run.engine
    fed = {node for plan, _ in run.shard_plans if isinstance(plan.source, Actors) for node in run.fed_by.get(plan, ())}
    asked: list[tuple[OpenShard, int, Any]] = []
    for plan, shard in run.shard_plans:
        if shard.slot < 0 or not (isinstance(plan.source, Actors) or plan.source in fed):
            continue
        in_flight = len(shard.calls)
        engine.forget(list(shard.calls))
        if _is_stopped_with_the_run(plan):
            run.count_dropped(in_flight)
        else:
            asked.append((shard, in_flight, engine.call(shard.actor, "close_stream", shard.slot)))
    calls = [call for _, _, call in asked]
    done = set(engine.wait(calls, CLOSE_S, len(calls))[0]) if calls else set()
    num_dropped = 0
    for shard, in_flight, call in asked:
        if call not in done:
            num_dropped += in_flight
            continue
        try:
            made, taken = engine.result(call)
        except ActorDiedError:
            continue
        # What partitions took from the streams above them is theirs to account for.
        num_dropped += made - shard.num_received - taken
    run.count_dropped(num_dropped)


def _is_stopped_with_the_run(plan: ShardPlan) -> bool:
    named = plan.source.actors[plan.position] if isinstance(plan.source, Actors) else None
    return isinstance(named, Handle) and (getattr(named, "owner", None) or named).num_users == 1
