"""Python iterables as the feed of a step: opened at the first pull, repeated where asked. Nothing here starts anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flowrl.errors import PlanError
from flowrl.iter.naming import short
from flowrl.iter.signals import BLOCKED, EMPTY, call_user

__all__ = ["Feed", "Polled", "PolledStage", "make_iterable", "refuse_one_shot"]


def _is_iterable(source: Any) -> bool:
    return hasattr(type(source), "__iter__") or hasattr(type(source), "__getitem__")


def _is_factory(source: Any) -> bool:
    """A function, or a class whose instances are iterable."""
    return callable(source) and not _is_iterable(source)


def refuse_one_shot(source: Any, operator: str, line: str) -> Any:
    """`source`, if it is an iterable that can begin again or a factory of one; `PlanError` else."""
    if hasattr(source, "_node"):
        raise PlanError(
            f"{operator} at {line} got {short(source)}, a plan: put stages on it, or bring plans together with union or Concurrently"
        )
    if isinstance(source, Polled) or _is_factory(source):
        return source
    if not _is_iterable(source):
        raise PlanError(
            f"{operator} at {line} got {short(source)}, which is neither an iterable nor a function that returns one: "
            "pass a list, a range, or a function such as `lambda: my_generator()`"
        )
    if hasattr(type(source), "__next__"):
        raise PlanError(
            f"{operator} at {line} got {short(source)}, an iterator that can be read only once, but a plan may run again and its "
            "parts may travel to other processes: pass a function that makes it, such as `lambda: my_generator()`"
        )
    return source


def make_iterable(source: Any) -> Iterable[Any]:
    """The iterable itself, or what the factory returns."""
    made = source() if _is_factory(source) else source
    if not _is_iterable(made):
        raise TypeError(f"the source function returned {short(made)}: it must return an iterable, or be a generator function")
    return made  # type: ignore[no-any-return]


class Feed:
    """The feed of a step: the iterable is made, and its iterator put in the step's state, when the first item is asked for."""

    __slots__ = ("repeat", "source", "state")

    def __init__(self, source: Any, repeat: bool = False) -> None:
        self.source, self.repeat = source, repeat
        self.state: Any = None

    def __iter__(self) -> Iterator[Any]:
        self.state.feed = EMPTY
        iterator = Repeated(self.source) if self.repeat else iter(make_iterable(self.source))
        self.state.feed = iterator
        return iterator


class Repeated:
    """The items of a source again and again. A pass without an item, or one that raised, is the last."""

    __slots__ = ("current", "given", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.current: Iterator[Any] = EMPTY
        self.given = True

    def __iter__(self) -> Repeated:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                for item in self.current:
                    self.given = True
                    return item
                if not self.given:
                    raise StopIteration
                self.given = False
                self.current = iter(make_iterable(self.source))
            except BaseException:
                self.current, self.given = EMPTY, False
                raise


class Polled:
    """A source that may have nothing to give before another branch has acted: `poll()` gives an item, None for not yet.

    In the driver or in an actor; it never ends, and nobody asks again before something has reached it.
    """

    def __init__(self, poll: Callable[[], Any], why: Callable[[], str]) -> None:
        self.poll, self.why = poll, why


class PolledStage:
    """A `Polled` source as the first stage of a chain: BLOCKED where it has nothing yet."""

    sources: tuple[Any, ...] = ()
    num_in = num_held = 0

    def __init__(self, source: Polled, label: str, where: str = "") -> None:
        self.source, self.label, self.where = source, label, where
        self.num_out = 0

    def pull(self) -> Any:
        """The next item, or BLOCKED."""
        x = call_user(self.source.poll, self.label, self.where)
        if x is None:
            return BLOCKED
        self.num_out += 1
        return x

    def why_blocked(self) -> str:
        """What it waits for."""
        return f"{self.label} waits for {self.source.why()}"
