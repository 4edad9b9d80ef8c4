"""How a command ends: its exit code, and what is said of an error. A wrong name or value is one line, a user's error their traceback."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from flowrl.cli.interrupts import INTERRUPTED
from flowrl.cli.tracebacks import user_traceback
from flowrl.errors import ConfigError, FlowError, PlanError
from flowrl.references import nearest

__all__ = ["FAILED", "USAGE", "is_a_wrong_name", "run_app"]

FAILED, USAGE = 1, 2
"""Exit codes."""

_GYMNASIUMS = ("UnregisteredEnv", "DeprecatedEnv", "DependencyNotInstalled")
"""Errors of gymnasium that say what is wrong with a name, or what to install for it."""


def run_app(app: typer.Typer, arguments: list[str]) -> int:
    """The exit code of a command line."""
    try:
        code = app(arguments or ["--help"], prog_name="flowrl", standalone_mode=False)
    except typer.TyperException as error:
        return _say(_usage(error), USAGE)
    except BrokenPipeError:  # `flowrl list | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if is_a_wrong_name(error):
            return _say(_one_line(error), USAGE)
        if isinstance(error, FlowError):
            return _say("\n".join([_one_line(error), *getattr(error, "__notes__", ())]), FAILED)
        sys.stderr.write(user_traceback(error))
        return FAILED
    return code if isinstance(code, int) else 0


def is_a_wrong_name(error: BaseException) -> bool:
    """Whether the command line or a settings file is wrong, or what they name: known before the first step."""
    if isinstance(error, ConfigError | PlanError):
        return True
    return any(kind.__module__ == "gymnasium.error" and kind.__name__ in _GYMNASIUMS for kind in type(error).__mro__)


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"flowrl: {message}\n")
    return code


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _usage(error: typer.TyperException) -> str:
    """What typer finds wrong, on one line, with the nearest option where there is no such one."""
    context: Any = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())
    wrong = getattr(error, "option_name", None)
    if context is None:
        return message
    if wrong is not None and message.startswith("No such option"):
        known = [
            name for parameter in context.command.params for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")
        ]
        message = f"No such option: {wrong}. {nearest(wrong, [*known, '--help'])}"
    if context.info_name == "train" and message.startswith("Got unexpected extra argument"):
        message += ": the env is named by --env"
    return f"{message} (flowrl {context.info_name} --help)" if context.parent is not None else message
