"""What both faces of a plan share: its node, its checks and its pictures, and the linear stages that both have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from flowrl import graph
from flowrl.iter.building import at_least, callable_fn
from flowrl.iter.choose import resolve_engine
from flowrl.iter.depict import record_of
from flowrl.iter.naming import plan_line
from flowrl.iter.nodes import Actors, Batch, Combine, Filter, LinearStage, Map, Node, Shuffle, Stage, Transform, walk
from flowrl.iter.passes import check, named_handles

__all__ = ["Plan"]

T = TypeVar("T")


class Plan(Generic[T]):
    """What both faces share: the node, its checks and its pictures."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def check(self) -> None:
        """Raise `PlanError` for what is known to be wrong; starts nothing."""
        check(self._node)

    def graph(self) -> Any:
        """The plan as a `networkx.MultiDiGraph`; starts nothing."""
        return graph.to_networkx(record_of(self._node))

    def explain(self) -> str:
        """The plan as a text tree, with the engine that would run it; starts nothing."""
        return graph.explain(record_of(self._node, engine=repr(self._engine())))

    def draw(self, path: str | Path) -> Path:
        """Check the plan and draw it: .svg, .png, .html, .mmd or .dot. Starts nothing."""
        check(self._node)
        return graph.draw(record_of(self._node), path)

    def _repr_svg_(self) -> str:
        return graph.to_svg(record_of(self._node))

    def _engine(self, wanted: Any = None) -> Any:
        actors = [actor for node in walk(self._node) if isinstance(node, Actors) for actor in node.actors]
        return resolve_engine(wanted, [*named_handles(self._node), *actors])

    def _stage(self, stage: LinearStage, operator: str) -> Stage:
        return Stage(line=plan_line(), input=self._node, stage=stage, operator=operator)

    def _for_each(self, fn: Any, max_concurrency: int = 1, resources: Mapping[str, Any] | None = None) -> Stage:
        callable_fn(fn, "for_each", plan_line())
        return self._stage(Map(fn, max_concurrency, resources), "for_each")

    def _combine(self, fn: Any) -> Stage:
        return self._stage(Combine(callable_fn(fn, "combine", plan_line())), "combine")

    def _filter(self, fn: Any) -> Stage:
        return self._stage(Filter(callable_fn(fn, "filter", plan_line())), "filter")

    def _batch(self, n: int) -> Stage:
        return self._stage(Batch(at_least(n, 1, "n", "batch", plan_line())), "batch")

    def _transform(self, fn: Any) -> Stage:
        return self._stage(Transform(callable_fn(fn, "transform", plan_line())), "transform")

    def _shuffle(self, size: int, seed: int | None, operator: str) -> Stage:
        size = at_least(size, 1, "shuffle_buffer_size", operator, plan_line())
        return self._stage(Shuffle(size, seed), operator)
