"""Where a plan begins: items, ranges, iterators and actors as sources. Nothing here starts anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from flowrl.errors import PlanError
from flowrl.iter.building import at_least
from flowrl.iter.handles import ActorHandle, Handle
from flowrl.iter.iterators import LocalIterator, ParallelIterator
from flowrl.iter.naming import name_of, plan_line, short
from flowrl.iter.nodes import Actors, LocalSource, Shards
from flowrl.iter.shard import ParallelIteratorWorker
from flowrl.iter.sources import refuse_one_shot

__all__ = ["from_actors", "from_items", "from_iterable", "from_iterators", "from_range"]

T = TypeVar("T")


def from_items(items: Sequence[T], num_shards: int = 2, repeat: bool = False) -> ParallelIterator[T]:
    """The items, dealt over `num_shards` actors: item j to shard j mod n.

    >>> from_items(["a", "b", "c"], num_shards=2).gather_sync().take(3)
    ['a', 'b', 'c']
    """
    line = plan_line()
    num = at_least(num_shards, 1, "num_shards", "from_items", line)
    dealt = list(refuse_one_shot(items, "from_items", line))
    kind = type(dealt[0]).__name__ if dealt else "None"
    return _shards(tuple(dealt[shard::num] for shard in range(num)), repeat, "from_items", f"{len(dealt)} {kind}", line)


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator[int]:
    """0 to n - 1 in contiguous slices, one a shard; their sizes differ by at most one, the longer ones last.

    >>> from_range(5, num_shards=2).batch_across_shards().take(2)
    [[0, 2], [1, 3]]
    """
    line = plan_line()
    num = at_least(num_shards, 1, "num_shards", "from_range", line)
    size, longer = divmod(at_least(n, 0, "n", "from_range", line), num)
    slices, start = [], 0
    for shard in range(num):
        end = start + size + (shard >= num - longer)
        slices.append(range(start, end))
        start = end
    return _shards(tuple(slices), repeat, "from_range", str(n), line)


def from_iterators(
    iterables_or_factories: Sequence[Iterable[T] | Callable[[], Iterable[T]]], repeat: bool = False, name: str | None = None
) -> ParallelIterator[T]:
    """One shard for each iterable, or function that returns one. An iterator that can be read only once is refused."""
    line = plan_line()
    sources = [
        refuse_one_shot(source, "from_iterators", line) for source in refuse_one_shot(iterables_or_factories, "from_iterators", line)
    ]
    if not sources:
        raise PlanError(f"from_iterators at {line} got none: give at least one iterable or function that returns one")
    return _shards(tuple(sources), repeat, "from_iterators", name or f"{len(sources)} iterators", line)


def _shards(factories: tuple[Any, ...], repeat: bool, operator: str, name: str, line: str) -> ParallelIterator[Any]:
    return ParallelIterator(Shards(line=line, factories=factories, repeat=bool(repeat), operator=operator, name=name))


def from_actors(actors: Sequence[Any], name: str | None = None) -> ParallelIterator[Any]:
    """One shard for each actor of a `ParallelIteratorWorker` subclass, or handle of one.

    The actors are the user's: a run makes their generator anew, never stops them, and their own state goes on. Answers in
    flight when a run is left are dropped and counted (`num_items_dropped`).
    """
    line = plan_line()
    given = tuple(actors)
    shown = name or f"{len(given)} actors"
    if not given:
        raise PlanError(f"from_actors at {line} got no actors: give at least one")
    for actor in given:
        cls = getattr(actor, "cls", None)
        fits = issubclass(cls, ParallelIteratorWorker) if isinstance(cls, type) else hasattr(actor, "open_stream")
        if not fits or (isinstance(actor, Handle) and not isinstance(actor, ActorHandle)):
            raise PlanError(f"from_actors at {line} got {short(actor)}: its class must be a subclass of ParallelIteratorWorker")
    if len({id(actor) for actor in given}) < len(given):
        raise PlanError(f"from_actors at {line} got an actor twice: each is one shard")
    return ParallelIterator(Actors(line=line, actors=given, name=shown))


def from_iterable(iterable_or_factory: Iterable[T] | Callable[[], Iterable[T]]) -> LocalIterator[T]:
    """A stream in the driver. An iterator that can be read only once is refused: pass a function that makes it.

    >>> list(from_iterable(range(3)))
    [0, 1, 2]
    """
    line = plan_line()
    source = refuse_one_shot(iterable_or_factory, "from_iterable", line)
    return LocalIterator(LocalSource(line=line, iterable=source, name=name_of(source) if callable(source) else short(source)))
