"""A user's traceback: their own frames, and what they called, without the frames of flowrl and of the command line."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path

import typer

import flowrl
from flowrl.iter.failures import RemoteTraceback

__all__ = ["is_in_users_code", "user_traceback"]

_PACKAGE = str(Path(flowrl.__file__).parent) + os.sep
_INSTALLED = tuple({str(Path(sysconfig.get_path(name))) + os.sep for name in ("stdlib", "purelib", "platlib", "scripts")})
_FRAME = re.compile(r'^(  File "(?P<path>[^"\n]*)", line \d+.*\n(?:    .*\n|  \[Previous line .*\n)*)', re.MULTILINE)
_RAY = str(Path(sysconfig.get_path("purelib")) / "ray") + os.sep
_COMMAND_LINE = (str(Path(typer.__file__).parent) + os.sep, str(Path(sysconfig.get_path("scripts"))) + os.sep)


def user_traceback(error: BaseException) -> str:
    """The traceback of an error with its notes; one from a worker as it was there. All frames, where none is the user's."""
    text = _text_of(error)
    if _has_users_frame(text):
        text = _FRAME.sub(lambda frame: "" if _is_internal(frame["path"]) else frame[0], text)
    text = text if text.endswith("\n") else text + "\n"
    missing = [note for note in getattr(error, "__notes__", ()) if note not in text]
    return text + "".join(f"{note}\n" for note in missing)


def is_in_users_code(error: BaseException) -> bool:
    """Whether an error comes out of code that is neither flowrl's nor an installed package's."""
    return _has_users_frame(_text_of(error))


def _text_of(error: BaseException) -> str:
    return error.__cause__.text if isinstance(error.__cause__, RemoteTraceback) else "".join(traceback.format_exception(error))


def _has_users_frame(text: str) -> bool:
    return any(not frame["path"].startswith((_PACKAGE, "<", *_INSTALLED)) for frame in _FRAME.finditer(text))


def _is_internal(path: str) -> bool:
    return path.startswith((_PACKAGE, "<frozen", "<flowrl", _RAY, *_COMMAND_LINE))
