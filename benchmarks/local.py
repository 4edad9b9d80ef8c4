"""The driver alone: a chain of linear stages, and a union, without any actor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ray.util.iter import LocalIterator as PeerIterator
from ray.util.iter_metrics import SharedMetrics

from benchmarks.pairs import Row, compare
from flowrl.iter import LocalIterator, from_iterable

N = 1_000_000
UNION_N = 200_000


def plus_one(x: int) -> int:
    return x + 1


def not_negative(x: int) -> bool:
    return x >= 0


def drain(items: Iterable[Any]) -> int:
    taken = 0
    for _ in items:
        taken += 1
    return taken


def peer(n: int) -> Any:
    return PeerIterator(lambda timeout=None: iter(range(n)), SharedMetrics())


def mapped(items: Iterable[int]) -> Iterator[int]:
    for x in items:
        yield plus_one(x)


def filtered(items: Iterable[int]) -> Iterator[int]:
    for x in items:
        if not_negative(x):
            yield x


def chain_of(plan: Any) -> Any:
    for _ in range(5):
        plan = plan.for_each(plus_one)
    return plan.filter(not_negative)


def generators(n: int) -> Iterator[int]:
    items: Iterable[int] = iter(range(n))
    for _ in range(5):
        items = mapped(items)
    return filtered(items)


def branch() -> LocalIterator[int]:
    return from_iterable(range(UNION_N)).for_each(plus_one)


def peer_branch() -> Any:
    return peer(UNION_N).for_each(plus_one)


def chain() -> list[Row]:
    work = "1e6 ints through 5 for_each and a filter"

    def ours() -> int:
        return drain(chain_of(from_iterable(range(N))))

    rows = compare(work, ours, {"bare generators": (lambda: drain(generators(N)), 0.6)})
    return rows + compare(work, ours, {"ray.util.iter": (lambda: drain(chain_of(peer(N))), 15)}, num_pairs=7)


def union() -> list[Row]:
    return compare(
        "round-robin union of three, one for_each each",
        lambda: drain(branch().union(branch(), branch(), deterministic=True)),
        {"ray.util.iter": (lambda: drain(peer_branch().union(peer_branch(), peer_branch(), deterministic=True)), 5)},
    )


def run() -> list[Row]:
    return chain() + union()
