"""What a text on the command line means."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable
from typing import Any

from flowrl.errors import ConfigError
from flowrl.references import nearest

__all__ = ["engine_name", "json_object", "number", "settings_of", "value_of", "whole_number"]


def value_of(text: str) -> Any:
    """The value of a setting: JSON, else a Python literal, else the text itself.

    >>> [value_of(text) for text in ("3e-4", "true", "None", "(64, 64)", '{"length": 3}', "MeanStdFilter", "my.py:MyEnv")]
    [0.0003, True, None, (64, 64), {'length': 3}, 'MeanStdFilter', 'my.py:MyEnv']
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return text


def settings_of(assignments: Iterable[str], **options: Any) -> dict[str, Any]:
    """The settings of all `--set field=value` and of the options that were given; none may be given twice.

    >>> settings_of(["lr=1e-3"], num_workers=2, engine=None)
    {'num_workers': 2, 'lr': 0.001}
    """
    settings: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"--set {assignment}: expected field=value, --set lr=3e-4 say")
        if name in settings:
            raise ConfigError(f"--set {assignment}: {name} is given twice, also as {settings[name]!r}")
        settings[name] = value_of(text)
    return settings


def whole_number(text: str | int) -> int:
    """A whole number, also as people write large ones.

    >>> [whole_number(text) for text in ("300000", "300_000", "3e5", -1)]
    [300000, 300000, 300000, -1]
    """
    value = text if isinstance(text, int) else value_of(text)
    if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
        return int(value)
    raise ConfigError(f"{text!r}: expected a whole number, 100_000 or 1e5 say")


def number(text: str | float) -> float:
    """A finite number."""
    value = value_of(text) if isinstance(text, str) else text
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise ConfigError(f"{text!r}: expected a number")


def engine_name(text: str) -> str:
    """ "serial" or "ray"."""
    known = ["serial", "ray"]
    if text not in known:
        raise ConfigError(f"there is no engine {text!r}. {nearest(text.lower(), known)}")
    return text


def json_object(text: str) -> dict[str, Any]:
    """A dict, as JSON or as a Python literal."""
    value = value_of(text)
    if not isinstance(value, dict):
        raise ConfigError(f"{text}: expected a JSON object, '{{\"length\": 3}}' say")
    return value
