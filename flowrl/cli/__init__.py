"""The command line: `flowrl train | eval | graph | list | check-env`. Each command's code is loaded when it is used."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code: 0, 1 for an error of the user's own code, 2 for a wrong name or value, 130 for Ctrl-C."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as for `python`: --env my_env:MyEnv means the module that lies here
    try:
        code = int(import_module("flowrl.cli.app").run(sys.argv[1:] if arguments is None else list(arguments)))
    except KeyboardInterrupt:  # before there was anything to end
        code = 130
    if arguments is None and code == 130:
        # All is said and written. Python's own end may crash where Ray's start was cut short.
        sys.stdout.flush()
        import_module("flowrl.cli.interrupts").leave_at_once()
    if arguments is None and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # All is said and written, what is left is to stop Ray: who presses Ctrl-C now has no patience for it.
        signal.signal(signal.SIGINT, import_module("flowrl.cli.interrupts").leave_at_once)
    return code
