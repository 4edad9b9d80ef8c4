"""The one metrics context of a run, and which one is current in a thread.

A run makes one `MetricsContext` and makes it current while its stages work; a shard has one of its own, whose
contents travel back with the shard's next answer and are merged here. Reading the current context outside a run is an
error: there is nothing it could mean.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import defaultdict
from typing import Any

from flowrl.errors import MetricsContextError
from flowrl.metrics.values import Mergeable, Timer

__all__ = ["ACTIVE", "MetricsContext", "active", "get_metrics"]


class MetricsContext:
    """Counters, timers, merging values and free information of one run.

    `counters` add up (`metrics.counters["num_steps_sampled"] += n`), `timers` are `Timer`s, `values` hold what merges
    (`Mean`, `Max`), `info` is whatever the operators want to show. `run` is the run it belongs to, None in a shard.
    """

    __slots__ = ("counters", "info", "run", "timers", "values")

    def __init__(self, run: Any = None) -> None:
        self.counters: defaultdict[str, int | float] = defaultdict(int)
        self.timers: defaultdict[str, Timer] = defaultdict(Timer)
        self.values: dict[str, Mergeable] = {}
        self.info: dict[str, Any] = {}
        self.run = run

    def observe(self, name: str, value: Mergeable) -> None:
        """Merge `value` (a `Mean`, say) into what is known under `name`."""
        known = self.values.get(name)
        if known is None:
            self.values[name] = copy.copy(value)  # the one who gave it may go on with it
        elif type(known) is not type(value):
            raise TypeError(f"{name!r} was observed as {type(known).__name__} before, now as {type(value).__name__}: use two names")
        else:
            known.merge(value)

    def now_s(self) -> float:
        """Seconds since the run began: by the clock, but counted on the serial engine (1 ms an item taken from a source)."""
        return float(self.run.now_s()) if self.run is not None else time.monotonic()

    @property
    def empty(self) -> bool:
        """Whether nothing was counted since it was made or taken."""
        return not (self.counters or self.timers or self.values or self.info)

    def take(self) -> dict[str, Any]:
        """All that was counted so far, for `merge` on the other side; starts over empty."""
        taken = {"counters": dict(self.counters), "timers": dict(self.timers), "values": self.values, "info": self.info}
        self.counters.clear()
        self.timers.clear()
        self.values, self.info = {}, {}
        return taken

    def merge(self, taken: dict[str, Any]) -> None:
        """Add what another context has given by `take`."""
        for name, amount in taken["counters"].items():
            self.counters[name] += amount
        for name, timer in taken["timers"].items():
            self.timers[name].merge(timer)
        for name, value in taken["values"].items():
            self.observe(name, value)
        self.info.update(taken["info"])


class Active(threading.local):
    """A thread's current context, in a list of one: the cheapest thing to set and unset around each item."""

    def __init__(self) -> None:
        self.slot: list[MetricsContext | None] = [None]


ACTIVE = Active()


def get_metrics() -> MetricsContext:
    """The context of the run that is at work in this thread."""
    context = ACTIVE.slot[0]
    if context is None:
        raise MetricsContextError(
            "no run is at work here, so there is no metrics context: call get_metrics() inside a function of the plan "
            "(for_each, filter, ...), or read stream.metrics of `with plan.run() as stream:`"
        )
    return context


class active:
    """`with active(context):` makes `context` current in this thread; what was current before comes back."""

    def __init__(self, context: MetricsContext) -> None:
        self._context = context
        self._before: MetricsContext | None = None

    def __enter__(self) -> MetricsContext:
        self._before, ACTIVE.slot[0] = ACTIVE.slot[0], self._context
        return self._context

    def __exit__(self, *raised: object) -> None:
        ACTIVE.slot[0] = self._before
