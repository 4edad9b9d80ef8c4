"""Ctrl-C while a run goes on: the first ends it where nothing is cut in half, a second one at once. So do SIGTERM and SIGHUP."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["INTERRUPTED", "Interrupts", "leave_at_once"]

INTERRUPTED = 130
"""Exit code of what Ctrl-C has ended."""
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, and what a batch system or a closed terminal sends: all the same to a run."""
_SHOW_CURSOR = b"\x1b[?25h\n"


class Interrupts:
    """`with Interrupts() as interrupts:` then `with interrupts.allowed():` around what a Ctrl-C may cut short.

    Outside of `allowed` the first one is only noted, and raised when `allowed` is next entered. Where Ctrl-C is ignored (in the
    background of a shell script) it stays so.
    """

    def __init__(self) -> None:
        self.count = 0
        self._is_allowed = False
        self._before: dict[int, Any] = {}

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise KeyboardInterrupt in here."""
        self._is_allowed = True
        try:
            if self.count:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_allowed = False

    def __enter__(self) -> Self:
        for number in _ENDINGS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            leave_at_once()
        if self._is_allowed:
            raise KeyboardInterrupt


def leave_at_once(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """End this process and all that it started: Ray's would take their time to see that nobody is left. For `signal.signal` too."""
    if sys.stdout.isatty():  # past rich, which may hold its lock
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
    for pid in _descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(INTERRUPTED)


def _descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they started, as /proc knows them; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may have ended meanwhile
            parent = stat.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [pid]
    for known in found:
        found += children.get(known, [])
    return found[1:]
