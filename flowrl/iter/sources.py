"""Python iterables as the feed of a step: opened at the first pull, repeated where asked. Nothing here starts anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flowrl.errors import PlanError
from flowrl.iter.naming import short
from flowrl.iter.signals import EMPTY

__all__ = ["Feed", "make_iterable", "refuse_one_shot"]


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
    if _is_factory(source):
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
