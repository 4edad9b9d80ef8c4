"""Exceptions that do not travel by themselves: each keeps its type, whatever its constructor wants and whatever it holds."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any


class NeedsTwo(Exception):
    """Its constructor wants other arguments than it keeps."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class KeywordOnly(Exception):
    """Its constructor wants a keyword."""

    def __init__(self, *, code: int) -> None:
        super().__init__("keyword only")
        self.code = code


class HoldsLock(Exception):
    """It holds what cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()
        self.code = 7


class WithSlots(Exception):
    """Its state is in a slot, and is not what the constructor makes."""

    __slots__ = ("code",)

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = 0


@dataclass(frozen=True)
class Frozen(Exception):
    """It lets nobody set an attribute."""

    code: int


class NoText(Exception):
    """It cannot even be shown."""

    code = 7

    def __str__(self) -> str:
        raise RuntimeError("no text")


class BadReduce(Exception):
    """It says wrongly how it is to be rebuilt."""

    code = 7

    def __reduce__(self) -> Any:
        return list, ((1, 2),)


class HoldsArg(Exception):
    """One of its arguments cannot be pickled."""

    def __init__(self, lock: Any) -> None:
        super().__init__("holds", lock)
        self.code = 7


def with_slot() -> WithSlots:
    """A `WithSlots` whose slot was set later."""
    error = WithSlots("slots")
    error.code = 7
    return error


MAKERS = {
    "a constructor of two arguments": lambda: NeedsTwo(7, "reason"),
    "a constructor with a keyword": lambda: KeywordOnly(code=7),
    "a lock in a field": lambda: HoldsLock("locked"),
    "a slot": with_slot,
    "a frozen dataclass": lambda: Frozen(7),
    "no text": lambda: NoText("hidden"),
    "a wrong __reduce__": lambda: BadReduce("odd"),
    "a lock among its arguments": lambda: HoldsArg(threading.Lock()),
}
