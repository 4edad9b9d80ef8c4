"""A lock that goes to whoever has waited longest."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["Turns"]


class Turns:
    """For `with turns:`. A learner that takes it for each of its steps cannot keep it from a reader that waits, as with a plain lock.

    The thread that has it may take it again.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._owner: int | None = None
        self._depth = 0

    @property
    def are_anothers(self) -> bool:
        """Whether another thread has it now."""
        return self._owner is not None and self._owner != threading.get_ident()

    def __enter__(self) -> Turns:
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return self
        with self._guard:
            if self._owner is None:
                self._owner = me
                self._depth = 1
                return self
            my_turn = threading.Lock()
            my_turn.acquire()
            self._waiting.append((me, my_turn))
        try:
            my_turn.acquire()  # whoever hands it over has made us its owner
        except BaseException:
            self._leave(me, my_turn)
            raise
        return self

    def _leave(self, me: int, my_turn: threading.Lock) -> None:
        """Interrupted while waiting: off the list, or, where it was handed to us just now, on to the next."""
        with self._guard:
            waits = (me, my_turn) in self._waiting
            if waits:
                self._waiting.remove((me, my_turn))
        if not waits:
            self.__exit__()

    def __exit__(self, *raised: object) -> None:
        with self._guard:
            self._depth -= 1
            if self._depth:
                return
            if not self._waiting:
                self._owner = None
                return
            self._owner, next_turn = self._waiting.popleft()
            self._depth = 1
            next_turn.release()

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        return Turns, ()
