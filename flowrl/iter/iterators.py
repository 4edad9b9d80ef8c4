"""The fluent face of a plan: `ParallelIterator` (items in the shards) and `LocalIterator` (a stream in the driver).

Each method makes one node and starts nothing. A plan runs when it is iterated, or by `run()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Integral
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypeVar

from flowrl.errors import PlanError
from flowrl.iter.building import at_least, weights_for
from flowrl.iter.naming import label_of, plan_line, short
from flowrl.iter.nodes import (
    Child,
    Duplicate,
    Flatten,
    Gather,
    LocalSource,
    Node,
    Put,
    Repartition,
    SelectShards,
    ShardUnion,
    Union,
    ZipSource,
)
from flowrl.iter.opening import shards_of
from flowrl.iter.passes import keeps_source
from flowrl.iter.plan import Plan
from flowrl.iter.stream import Loops, Stream
from flowrl.metrics.context import MetricsContext, get_metrics

__all__ = ["LocalIterator", "ParallelIterator"]

T = TypeVar("T")
U = TypeVar("U")


class ParallelIterator(Plan[T]):
    """Items in n shards, each in an actor of its own. Every stage here runs in the shards, each with its own copy of it.

    >>> from flowrl.iter import from_range
    >>> from_range(6, num_shards=2).for_each(lambda x: 10 * x).gather_sync().take(4)
    [0, 30, 10, 40]

    End it with a gather: `gather_sync` and `batch_across_shards` are barriers, `gather_async` takes what is ready.
    """

    def transform(self, fn: Callable[[Iterator[T]], Any]) -> ParallelIterator[Any]:
        """`fn` makes an iterator of the shard's iterator, once a shard. Failures upstream pass it by."""
        return ParallelIterator(self._transform(fn))

    def for_each(self, fn: Callable[[T], U], max_concurrency: int = 1, resources: Mapping[str, Any] | None = None) -> ParallelIterator[U]:
        """`fn` of each item, in input order.

        With `max_concurrency` above 1 or `resources` (`{"num_cpus": 1}`, as for `ray.remote`) the calls are tasks outside the
        shard's actor, at most that many at once a shard; weights sent meanwhile may be that much older.
        """
        line = plan_line()
        width = at_least(max_concurrency, 1, "max_concurrency", "for_each", line)
        if resources is not None and width == 1:
            raise PlanError(
                f"for_each(resources={short(resources)}) at {line}: resources are for calls outside the shard, so give "
                "max_concurrency above 1"
            )
        return ParallelIterator(self._for_each(fn, width, resources))

    def filter(self, fn: Callable[[T], Any]) -> ParallelIterator[T]:
        """The items for which `fn` is true."""
        return ParallelIterator(self._filter(fn))

    def batch(self, n: int) -> ParallelIterator[list[T]]:
        """Lists of `n` items of one shard, its last one shorter."""
        return ParallelIterator(self._batch(n))

    def flatten(self) -> ParallelIterator[Any]:
        """The elements of each item, one level deep."""
        return ParallelIterator(self._stage(Flatten(), "flatten"))

    def combine(self, fn: Callable[[T], Any]) -> ParallelIterator[Any]:
        """`for_each(fn)`, then `flatten()`: `fn` returns a list, empty for nothing."""
        return ParallelIterator(self._combine(fn))

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> ParallelIterator[T]:
        """A random one of a full buffer, shard by shard; a seeded shuffle differs from shard to shard.

        Without a seed each run draws one; on the serial engine it comes from the engine's seed.
        """
        return ParallelIterator(self._shuffle(shuffle_buffer_size, seed, "local_shuffle"))

    def repartition(self, num_partitions: int, batch_ms: float = 0) -> ParallelIterator[T]:
        """The items dealt anew over `num_partitions` new actors: item j of a shard to partition j mod n.

        A partition that lags 64 items behind is skipped, not waited for. Partitions that a plan does not read take no
        part.
        """
        line = plan_line()
        num = at_least(num_partitions, 1, "num_partitions", "repartition", line)
        ms = at_least(batch_ms, 0, "batch_ms", "repartition", line, whole=False)
        return ParallelIterator(Repartition(line=line, input=self._node, num_partitions=num, batch_ms=ms))

    def union(self, *others: ParallelIterator[T]) -> ParallelIterator[T]:
        """The shards of all side by side."""
        line = plan_line()
        for other in others:
            if not isinstance(other, ParallelIterator):
                raise PlanError(f"union at {line} got {short(other)}: shards go together with shards; gather first for a union of streams")
        return ParallelIterator(ShardUnion(line=line, members=(self._node, *(other._node for other in others))))

    def select_shards(self, indices: Sequence[int]) -> ParallelIterator[T]:
        """Only these shards; each keeps its index."""
        line = plan_line()
        if not isinstance(indices, Sequence):
            raise PlanError(f"select_shards({short(indices)}) at {line}: give a list of indices, or use get_shard(i) for one")
        chosen = list(indices)
        if not chosen or len(set(chosen)) < len(chosen):
            raise PlanError(f"select_shards({short(chosen)}) at {line}: give at least one index, each once")
        return ParallelIterator(
            SelectShards(line=line, input=self._node, indices=tuple(self._index(i, "select_shards", line) for i in chosen))
        )

    def _index(self, i: Any, operator: str, line: str) -> int:
        if isinstance(i, bool) or not isinstance(i, Integral) or not 0 <= int(i) < self.num_shards():
            raise PlanError(f"{operator}({short(i)}) at {line}: there are {self.num_shards()} shards, 0 to {self.num_shards() - 1}")
        return int(i)

    def num_shards(self) -> int:
        """How many shards there are."""
        return len(shards_of(self._node))

    def shards(self) -> list[LocalIterator[T]]:
        """Each shard as a stream of its own."""
        return [self.get_shard(i) for i in range(self.num_shards())]

    def get_shard(self, i: int, batch_ms: float = 0, num_async: int = 1) -> LocalIterator[T]:
        """The items of shard `i` in their order, with at most `num_async` calls in flight."""
        line = plan_line()
        chosen = SelectShards(line=line, input=self._node, indices=(self._index(i, "get_shard", line),))
        return self._gather(chosen, "async", "get_shard", batch_ms, num_async)

    def gather_sync(self) -> LocalIterator[T]:
        """A barrier: one item of each shard, in shard order, then the next round.

        All that the driver did with round i (weights sent, say) is seen by every shard before it makes round i + 1.
        """
        return self._gather(self._node, "sync", "gather_sync")

    def batch_across_shards(self) -> LocalIterator[list[T]]:
        """A barrier: lists of one item a shard, in shard order; shorter once a shard has ended."""
        return self._gather(self._node, "lists", "batch_across_shards")

    def gather_async(self, batch_ms: float = 0, num_async: int = 1) -> LocalIterator[T]:
        """What is ready, the shards in turn, each shard's own order kept.

        At most `num_async` calls in flight a shard; it is asked again when its last answer has been handled. With
        `batch_ms`, an answer holds all items of that time (at most 10,000 items or 32 MB).
        """
        return self._gather(self._node, "async", "gather_async", batch_ms, num_async)

    def _gather(
        self, node: Node, mode: Literal["sync", "lists", "async"], operator: str, batch_ms: float = 0, num_async: int = 1
    ) -> LocalIterator[Any]:
        line = plan_line()
        ms = at_least(batch_ms, 0, "batch_ms", operator, line, whole=False)
        depth = at_least(num_async, 1, "num_async", operator, line)
        return LocalIterator(Gather(line=line, input=node, mode=mode, batch_ms=ms, num_async=depth, operator=operator))

    def take(self, n: int) -> list[T]:
        """The first `n` items by `gather_sync`, in a run of its own."""
        return self.gather_sync().take(n)

    def show(self, n: int = 20) -> None:
        """Print the first `n` items by `gather_sync`, in a run of its own."""
        self.gather_sync().show(n)

    def run(self, engine: Any = None) -> NoReturn:
        """Refused: the items never leave their shards; gather first."""
        self.check()
        raise AssertionError("a plan that ends in its shards never passes its check")

    def __iter__(self) -> Iterator[T]:
        raise TypeError(
            f"{self!r} has its items in the shards: end it with gather_sync(), gather_async(), batch_across_shards() or get_shard(i)"
        )

    def __repr__(self) -> str:
        return f"ParallelIterator({label_of(self._node)}, {self.num_shards()} shards)"


class LocalIterator(Plan[T]):
    """A stream in the driver: the rest of a plan, after a gather.

    >>> from flowrl.iter import from_iterable
    >>> list(from_iterable([1, 2, 3]).for_each(lambda x: x + 1).filter(lambda x: x != 3))
    [2, 4]

    `iter(it)`, `list(it)`, `take`, `show` each open a run of their own and close it at their end. `next(it)` continues
    one run that the handle owns, closed at its end, by `it.close()` or by `with it:`. Running again starts over.
    """

    _stream: Stream[T] | None = None

    def for_each(self, fn: Callable[[T], U]) -> LocalIterator[U]:
        """`fn` of each item. `for_each(Enqueue(queue))` puts it into a queue and hands it on."""
        shared = getattr(fn, "enqueue_into", None)
        if shared is not None:
            return LocalIterator(self._stage(Put(shared), "for_each"))
        return LocalIterator(self._for_each(fn))

    def filter(self, fn: Callable[[T], Any]) -> LocalIterator[T]:
        """The items for which `fn` is true."""
        return LocalIterator(self._filter(fn))

    def batch(self, n: int) -> LocalIterator[list[T]]:
        """Lists of `n` items, the last one shorter."""
        return LocalIterator(self._batch(n))

    def flatten(self) -> LocalIterator[Any]:
        """The elements of each item, one level deep."""
        return LocalIterator(self._stage(Flatten(), "flatten"))

    def combine(self, fn: Callable[[T], Any]) -> LocalIterator[Any]:
        """`for_each(fn)`, then `flatten()`: `fn` returns a list, empty for nothing."""
        return LocalIterator(self._combine(fn))

    def transform(self, fn: Callable[[Iterator[T]], Any]) -> LocalIterator[Any]:
        """`fn` makes an iterator of a plain iterator of items. Failures upstream pass it by.

        Above a gather, a queue or a duplicate `fn` runs in a thread of its own, so that it can be suspended while an item is
        waited for: about 0.1 ms an item. A generator that raised is finished, as in Python.
        """
        return LocalIterator(self._transform(fn))

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator[T]:
        """A random one of a full buffer. Without a seed each run draws one; on the serial engine it comes from the engine's seed."""
        return LocalIterator(self._shuffle(shuffle_buffer_size, seed, "shuffle"))

    def zip_with_source_actor(self) -> LocalIterator[tuple[Any, T]]:
        """(actor, item): the actor that made it, or its handle. Refused where the source is lost."""
        return self._zip(every=False)

    def zip_with_source_actors(self) -> LocalIterator[tuple[tuple[Any, ...], T]]:
        """(actors, item): all actors that had a part in it, each once; also after `batch` and operators that merge items."""
        return self._zip(every=True)

    def _zip(self, every: bool) -> LocalIterator[Any]:
        operator = "zip_with_source_actors" if every else "zip_with_source_actor"
        lost = keeps_source(self._node, every)
        if lost is not None:
            where = f"{operator} at {plan_line()}: which actor made an item is not known after {label_of(lost)}. "
            if isinstance(lost, LocalSource):
                where += "That is in the driver, made by no actor (for rollouts by workers set num_workers). "
            hint = "" if every else "; for all actors of a merged item use zip_with_source_actors()"
            raise PlanError(f"{where}Put it between the gather and that{hint}")
        return LocalIterator(self._stage(ZipSource(every), operator))

    def duplicate(self, n: int) -> list[LocalIterator[T]]:
        """`n` streams of the same items, to be consumed side by side: one may be 64 items ahead of another.

        A branch that drops items (a filter) takes the next ones in the same turn, and so may have the source make items before the
        other branch has acted on earlier ones: give the branch that trains its turn first, by weights, where it has to be on-policy.

        Children that a plan does not reach do not exist in its run.
        """
        line = plan_line()
        node = Duplicate(line=line, input=self._node, n=at_least(n, 2, "n", "duplicate", line))
        return [LocalIterator(Child(line=line, input=node, index=index)) for index in range(n)]

    def union(
        self, *others: LocalIterator[T], deterministic: bool = False, round_robin_weights: Sequence[Any] | None = None
    ) -> LocalIterator[T]:
        """Several streams in one, in turns; a finished one drops out.

        `deterministic` waits for the branch whose turn it is (one that only another branch can make ready is owed its
        turns); otherwise whoever is ready goes on. A weight is how many items a branch gives a turn, a fraction is exact
        in the long run, `"*"` is all that is ready, at most 100.
        """
        line = plan_line()
        for other in others:
            if not isinstance(other, LocalIterator):
                raise PlanError(
                    f"union at {line} got {short(other)}, whose items never leave their shards or which is no plan: gather it first"
                )
        members = (self._node, *(other._node for other in others))
        weights = weights_for(round_robin_weights, members, "union", line)
        return LocalIterator(
            Union(line=line, members=members, deterministic=bool(deterministic), weights=weights, outputs=None, operator="union")
        )

    @staticmethod
    def get_metrics() -> MetricsContext:
        """The metrics context of the plan that is running; an error outside one."""
        return get_metrics()

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, engine: Any = None) -> Stream[T]:
        """A run of the plan: `with plan.run() as stream:`. `engine` is "serial", "ray" or an engine object."""
        return Stream(self._node, self._engine(engine))

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(Loops(self.run().__enter__(), owns=True))

    def take(self, n: int) -> list[T]:
        """The first `n` items, in a run of its own."""
        taken: list[T] = []
        if n > 0:
            with self.run() as stream:
                for item in stream:
                    taken.append(item)
                    if len(taken) >= n:
                        break
        return taken

    def show(self, n: int = 20) -> None:
        """Print the first `n` items, in a run of its own."""
        for item in self.take(n):
            print(item)

    def __next__(self) -> T:
        if self._stream is None:
            self._stream = self.run()
        return next(self._stream)

    def close(self) -> None:
        """Close the run that `next` continues; the next `next` starts over."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._stream is not None and not self._stream.is_over:
            raise TypeError(
                f"{self!r} has been read in part by next(), and a run cannot travel: close() it first, then it starts over there"
            )
        return {"_node": self._node}

    def __repr__(self) -> str:
        return f"LocalIterator({label_of(self._node)})"
