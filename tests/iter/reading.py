"""How tests read a stream: all of it, errors among the items, with a bound on how often they ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["drain", "notes_of", "one_error"]

MOST = 10_000


def drain(stream: Iterator[Any]) -> list[Any]:
    """Items and raised exceptions, in order, to the end of the stream."""
    seen: list[Any] = []
    for _ in range(MOST):
        try:
            seen.append(next(stream))
        except StopIteration:
            return seen
        except Exception as error:
            seen.append(error)
    raise AssertionError(f"no end after {MOST} items, the last ones {seen[-5:]}")


def one_error(seen: list[Any]) -> BaseException:
    """The only exception in what was drained."""
    (error,) = (item for item in seen if isinstance(item, BaseException))
    return error


def notes_of(error: BaseException) -> str:
    """All notes, a line each."""
    return "\n".join(getattr(error, "__notes__", ()))
