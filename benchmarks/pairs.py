"""Measuring side by side: the same work by two ways in turn, and the median of the pairs' ratios."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "compare", "consume", "rate_of"]


@dataclass(frozen=True)
class Row:
    """One comparison: ours over theirs, a pair at a time."""

    work: str
    peer: str
    ours: list[float]
    theirs: list[float]
    at_least: float
    unit: str = "items/s"

    @property
    def ratios(self) -> list[float]:
        return [mine / other for mine, other in zip(self.ours, self.theirs)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        verdict = "ok" if self.ratio >= self.at_least else "MISSED"
        return (
            f"{self.work:<52} {statistics.median(self.ours):>12,.0f} {self.unit:<8} vs {self.peer:<18} "
            f"{statistics.median(self.theirs):>12,.0f}"
            f"  ratio {self.ratio:6.2f} [{min(self.ratios):.2f}..{max(self.ratios):.2f}] of {len(self.ratios)} pairs, at least "
            f"{self.at_least}: {verdict}"
        )


def consume(items: Iterator[Any], num_items: int) -> int:
    """Take so many items by `for`."""
    taken = 0
    for _ in itertools.islice(items, num_items):
        taken += 1
    return taken


def rate_of(work: Callable[[], int]) -> float:
    """Items a second of one go."""
    start = time.perf_counter()
    num_items = work()
    return num_items / (time.perf_counter() - start)


def compare(work: str, ours: Callable[[], int], peers: dict[str, tuple[Callable[[], int], float]], num_pairs: int = 15) -> list[Row]:
    """All sides in turn, the order changing from pair to pair; one row a peer. `peers`: name -> (what it does, the least ratio)."""
    sides = {"flowrl": ours, **{name: other for name, (other, _) in peers.items()}}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for pair in range(num_pairs):
        for name in list(sides) if pair % 2 == 0 else reversed(list(sides)):
            rates[name].append(rate_of(sides[name]))
    rows = [Row(work, name, rates["flowrl"], rates[name], least) for name, (_, least) in peers.items()]
    for row in rows:
        print(row, flush=True)
    return rows
