"""Two Ray shards: gathers against a hand-written loop and against `ray.util.iter`, all open at once and pulled in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import ray
from ray.util import iter as peer_iter

from benchmarks.pairs import Row, compare, consume
from flowrl.iter import ParallelIterator, from_iterators, from_range

WARM_UP = 200
ENDLESS = 10**9
TINY_PAIRS = 31
"""A pair of so small items varies by 10 to 20 %."""


def plus_one(x: int) -> int:
    return x + 1


@ray.remote(num_cpus=0)
class Counter:
    """What a user would write by hand: one item a call."""

    def __init__(self, first: int) -> None:
        self.items = iter(range(first, first + ENDLESS))

    def next(self) -> int:
        return plus_one(next(self.items))


@ray.remote(num_cpus=0)
class Arrays:
    """One array of a megabyte a call."""

    def __init__(self) -> None:
        self.items = arrays()

    def next(self) -> Any:
        return next(self.items)


def arrays() -> Iterator[Any]:
    array = np.zeros(2**20, np.uint8)
    for index in itertools.count():
        array[0] = index & 255
        yield array


def hand_async(actors: list[Any], num_async: int) -> Iterator[Any]:
    """`ray.wait`, hand out, and ask again after it was handled."""
    calls = {actor.next.remote(): actor for _ in range(num_async) for actor in actors}
    while True:
        ready, _ = ray.wait(list(calls), num_returns=1)
        actor = calls.pop(ready[0])
        yield ray.get(ready[0])
        calls[actor.next.remote()] = actor


def hand_sync(actors: list[Any]) -> Iterator[Any]:
    """`ray.get` of one call a shard."""
    while True:
        yield from ray.get([actor.next.remote() for actor in actors])


def side_by_side(
    work: str, ours: Any, peers: dict[str, tuple[Iterator[Any], float]], num_items: int, stack: ExitStack, num_pairs: int = 15
) -> list[Row]:
    """Each side warmed up, then the same number of items from each in turn."""
    stream = iter(stack.enter_context(ours.run(engine="ray")))
    sides = {"flowrl": stream, **{name: items for name, (items, _) in peers.items()}}
    for items in sides.values():
        consume(items, WARM_UP)

    def take(items: Iterator[Any]) -> Callable[[], int]:
        return lambda: consume(items, num_items)

    return compare(work, take(stream), {name: (take(items), least) for name, (items, least) in peers.items()}, num_pairs)


def tiny_items() -> list[Row]:
    rows: list[Row] = []
    for num_async in (1, 2, 4):
        with ExitStack() as stack:
            rows += side_by_side(
                f"2 shards, tiny items, gather_async num_async={num_async}",
                from_range(ENDLESS, 2).for_each(plus_one).gather_async(num_async=num_async),
                {
                    "ray.wait by hand": (hand_async(counters(stack), num_async), 0.95),
                    "ray.util.iter": (peer_range(stack).gather_async(num_async=num_async), 1.1),
                },
                1500,
                stack,
                num_pairs=TINY_PAIRS,
            )
    with ExitStack() as stack:
        rows += side_by_side(
            "2 shards, tiny items, gather_sync",
            from_range(ENDLESS, 2).for_each(plus_one).gather_sync(),
            {
                "ray.get by hand": (hand_sync(counters(stack)), 0.95),
                "ray.util.iter": (peer_range(stack).gather_sync(), 0.95),
            },
            1500,
            stack,
            num_pairs=TINY_PAIRS,
        )
    return rows


def batches() -> list[Row]:
    with ExitStack() as stack:
        return side_by_side(
            "2 shards, batch_ms=10, num_async=3",
            from_range(ENDLESS, 2).for_each(plus_one).gather_async(batch_ms=10, num_async=3),
            {"ray.util.iter": (peer_range(stack).gather_async(batch_ms=10, num_async=3), 2)},
            400_000,
            stack,
        )


def payload() -> list[Row]:
    with ExitStack() as stack:
        plan: ParallelIterator[Any] = from_iterators([arrays, arrays])
        return side_by_side(
            "2 shards, arrays of 1 MB, num_async=2",
            plan.gather_async(num_async=2),
            {"ray.wait by hand": (hand_async([killed_at_end(stack, Arrays.remote()) for _ in range(2)], 2), 0.95)},
            400,
            stack,
        )


def counters(stack: ExitStack) -> list[Any]:
    return [killed_at_end(stack, Counter.remote(shard * ENDLESS)) for shard in range(2)]


def killed_at_end(stack: ExitStack, actor: Any) -> Any:
    stack.callback(ray.kill, actor)
    return actor


def peer_range(stack: ExitStack) -> Any:
    shards = peer_iter.from_range(ENDLESS, 2)
    for actor_set in shards.actor_sets:
        for actor in actor_set.actors:
            stack.callback(ray.kill, actor)
    return shards.for_each(plus_one)


def run() -> list[Row]:
    return tiny_items() + batches() + payload()
