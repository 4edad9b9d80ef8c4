"""Actors and sources of a few lines that the tests put behind a plan. Ray's workers import this module, so it is light."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from flowrl.iter import ParallelIteratorWorker

__all__ = ["Holder", "Recorder", "Source", "Versioned", "living_actors", "never", "one_at_a_time", "raise_at", "slowly", "spilled_bytes"]


class Source(ParallelIteratorWorker):
    """A shard whose items a test loads before each run."""

    def __init__(self) -> None:
        super().__init__((), False)

    def load(self, items: Any, repeat: bool) -> None:
        """What the next runs read."""
        ParallelIteratorWorker.__init__(self, items, repeat)

    def pid(self) -> int:
        """The process that it lives in."""
        return os.getpid()


class Versioned(ParallelIteratorWorker):
    """Endless `(shard, version, seq)`: the version is what it was told last, as a sampling worker has its weights."""

    def __init__(self) -> None:
        super().__init__(self._items, False)
        self.shard, self.version, self.num_made = 0, 0, 0

    def _items(self) -> Iterator[tuple[int, int, int]]:
        self.num_made = 0
        while True:
            self.num_made += 1
            yield self.shard, self.version, self.num_made

    def set_shard(self, shard: int) -> None:
        """Which shard it says that it is."""
        self.shard = shard

    def set_version(self, version: int) -> None:
        """Make items with this version from now on."""
        self.version = version

    def count(self) -> int:
        """How many items this run has made so far."""
        return self.num_made


class Recorder:
    """A plain actor that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def tell(self, value: Any) -> int:
        """Keep a value; how many it has."""
        self.told.append(value)
        return len(self.told)

    def clear(self) -> None:
        """Forget all of it."""
        self.told.clear()

    def all(self) -> list[Any]:
        """All that it was told, in order."""
        return self.told

    def fail(self) -> None:
        """Raise."""
        raise KeyError("told to fail")

    def pid(self) -> int:
        """The process that it lives in."""
        return os.getpid()


@dataclass
class Holder:
    """An object with an array inside, as users make them."""

    array: Any


def living_actors() -> list[str]:
    """The classes of all actors of the local Ray cluster that are not dead."""
    from ray._private.state import state

    return [actor["ActorClassName"] for actor in state.actor_table(None, None, None).values() if actor["State"] != "DEAD"]


def spilled_bytes() -> int:
    """How many bytes the local Ray cluster has spilled to disk so far."""
    import ray
    from ray._private import internal_api

    address = ray.get_runtime_context().gcs_address
    reply = internal_api.get_memory_info_reply(internal_api.get_state_from_address(address))
    return int(reply.store_stats.spilled_bytes_total)


def slowly(items: Iterable[Any], seconds: float) -> Callable[[], Iterator[Any]]:
    """A source that takes so long for each item."""

    def make() -> Iterator[Any]:
        for item in items:
            time.sleep(seconds)
            yield item

    return make


def one_at_a_time(n: int) -> Callable[[], Iterator[int]]:
    """A generator function of 0 to n - 1."""

    def make() -> Iterator[int]:
        yield from range(n)

    return make


def raise_at(bad: Any, error: Callable[[str], BaseException] = ValueError) -> Callable[[Any], Any]:
    """A function that gives its item back, but raises for one of them."""

    def check(item: Any) -> Any:
        if item == bad:
            raise error(f"item {item}")
        return item

    return check


def never(item: Any) -> bool:
    """A filter that drops everything."""
    return False
