"""Values that merge: what several workers measured apart becomes what one would have measured alone.

A mean travels as sum and count, never as a mean of means. A timer travels as seconds, calls and units, so that rates
come from totals at report time. Counters are plain numbers and live in the context.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

__all__ = ["Log", "Max", "Mean", "Mergeable", "Timer", "Window"]


MAX_LOG_ITEMS = 10_000


class Mergeable(Protocol):
    """A value that can take in another one of its kind."""

    def merge(self, other: Self) -> None:
        """Take in what `other` measured."""

    @property
    def value(self) -> float:
        """What is reported."""


@dataclass
class Mean:
    """A mean that merges.

    >>> mean = Mean.of(3.0)
    >>> mean.merge(Mean(sum=1.0, count=3))
    >>> mean.value
    1.0
    """

    sum: float = 0.0
    count: float = 0

    @classmethod
    def of(cls, value: float, count: float = 1) -> Mean:
        """The mean of `count` samples that are all `value`."""
        return cls(value * count, count)

    def push(self, value: float) -> None:
        """Add one sample."""
        self.sum += value
        self.count += 1

    def merge(self, other: Mean) -> None:
        """Add the other's samples."""
        self.sum += other.sum
        self.count += other.count

    @property
    def value(self) -> float:
        """The mean of all samples; NaN where there is none."""
        return self.sum / self.count if self.count else math.nan


@dataclass
class Max:
    """The highest of all samples.

    >>> highest = Max(2.0)
    >>> highest.merge(Max(5.0))
    >>> highest.value
    5.0
    """

    max: float = -math.inf

    def push(self, value: float) -> None:
        """Add one sample."""
        self.max = max(self.max, value)

    def merge(self, other: Max) -> None:
        """Add the other's samples."""
        self.max = max(self.max, other.max)

    @property
    def value(self) -> float:
        """The highest sample; -inf where there is none."""
        return self.max


@dataclass
class Log:
    """Records that add up to one longer list, of which the last 10,000 are kept; several readers each keep a place of their own.

    >>> log = Log([1])
    >>> log.merge(Log([2, 3]))
    >>> log.since(0), log.since(2), log.value
    ([1, 2, 3], [3], 3.0)
    """

    items: list[Any] = field(default_factory=list)
    num_dropped: int = 0

    def merge(self, other: Log) -> None:
        """Append the other's records."""
        self.items.extend(other.items)
        if len(self.items) >= 2 * MAX_LOG_ITEMS:
            self.num_dropped += len(self.items) - MAX_LOG_ITEMS
            del self.items[:-MAX_LOG_ITEMS]

    def since(self, count: int) -> list[Any]:
        """The records after the first `count` ones, as far as they are kept."""
        return self.items[max(0, count - self.num_dropped) :]

    @property
    def value(self) -> float:
        """How many records there were."""
        return float(self.num_dropped + len(self.items))


@dataclass
class Window:
    """The last samples of something that goes up and down, and what they were like. Does not merge.

    >>> sizes = Window()
    >>> sizes.stats()["mean"]
    nan
    >>> for size in (1, 2, 6):
    ...     sizes.push(size)
    >>> sizes.stats()
    {'count': 3, 'mean': 3.0, 'min': 1, 'max': 6, 'last': 6}
    """

    samples: deque[float] = field(default_factory=lambda: deque(maxlen=100))
    count: int = 0

    def push(self, value: float) -> None:
        """Add one sample."""
        self.samples.append(value)
        self.count += 1

    def stats(self) -> dict[str, float]:
        """How many samples there were in all, and mean, lowest, highest and newest of the last 100."""
        last = list(self.samples)
        if not last:
            return {"count": 0, "mean": math.nan, "min": math.nan, "max": math.nan, "last": math.nan}
        return {"count": self.count, "mean": sum(last) / len(last), "min": min(last), "max": max(last), "last": last[-1]}


@dataclass
class Timer:
    """Seconds spent in a place, how often, and for how many units. For `with timer:`.

    >>> timer = Timer(seconds=2.0, calls=4, units=100)
    >>> timer.mean_s, timer.units_per_s
    (0.5, 50.0)

    Units that nobody pushed count as none. Not for two threads at once: each has its own, and they merge.
    """

    seconds: float = 0.0
    calls: int = 0
    units: float = 0.0
    _started: float | None = None

    def __enter__(self) -> Timer:
        if self._started is not None:
            raise RuntimeError("this timer is already running: use one timer a place, timers do not nest")
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._started is not None
        self.seconds += time.perf_counter() - self._started
        self.calls += 1
        self._started = None

    def push_units_processed(self, units: float) -> None:
        """Add to the units that the time went into: rows, steps, bytes."""
        self.units += units

    def merge(self, other: Timer) -> None:
        """Add the other's seconds, calls and units."""
        self.seconds += other.seconds
        self.calls += other.calls
        self.units += other.units

    @property
    def mean_s(self) -> float:
        """Seconds a call; NaN before the first."""
        return self.seconds / self.calls if self.calls else math.nan

    @property
    def units_per_s(self) -> float:
        """Units a second of time spent here; NaN before the first."""
        return self.units / self.seconds if self.seconds else math.nan

    @property
    def value(self) -> float:
        """What is reported: seconds a call."""
        return self.mean_s

    def stats(self) -> dict[str, float]:
        """The timer as a report shows it: totals, seconds a call, units a second."""
        return {
            "calls": self.calls,
            "seconds": self.seconds,
            "mean_s": self.mean_s,
            "units": self.units,
            "units_per_s": self.units_per_s,
        }
