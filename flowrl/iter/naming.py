"""How things are called in errors, pictures and texts: functions, operators, nodes, values, and lines of the plan."""

from __future__ import annotations

import functools
import os
import reprlib
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from flowrl.iter.nodes import Child, Duplicate, Node, Put, Repartition, SelectShards, ShardUnion, Stage

__all__ = ["label_of", "name_of", "operator_of", "own_operator", "parameters_of", "plan_line", "short"]

PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"
PLANS = f"{PACKAGE}algorithms{os.sep}"


@functools.cache
def _is_plan_file(filename: str) -> bool:
    return not filename.startswith(PACKAGE) or filename.startswith(PLANS)


def _is_of_a_plan(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    if filename == "<string>":  # a user's exec, or what `dataclass` wrote for one of flowrl's operators
        return not frame.f_globals.get("__name__", "").startswith("flowrl.")
    return _is_plan_file(filename)


def plan_line() -> str:
    """`"plan.py:12"`: the innermost line that is not flowrl's own, a prebuilt plan's line counting as a plan's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _is_of_a_plan(frame):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def own_operator(fn: object) -> bool:
    """Whether `fn` is one of flowrl's own operators: each run works on a copy of those, and on a user's callable as it is."""
    return type(fn).__module__.partition(".")[0] == "flowrl"


def _code_of(fn: Any) -> CodeType | None:
    code = getattr(fn, "__code__", None) or getattr(getattr(type(fn), "__call__", None), "__code__", None)  # noqa: B004
    return code if isinstance(code, CodeType) else None


def name_of(fn: Any) -> str:
    """How a function is shown: `name @ file.py:line`; an operator by its class, with its parameters.

    >>> name_of(len)
    'len'
    """
    if isinstance(fn, functools.partial):
        return f"partial({name_of(fn.func)})"
    if own_operator(fn):
        shown = ", ".join(f"{name}={value}" for name, value in parameters_of(fn))
        return f"{type(fn).__name__}({shown})"
    inner = getattr(fn, "__wrapped__", fn)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    name = name.rpartition("<locals>.")[2]
    code = _code_of(inner)
    return f"{name} @ {Path(code.co_filename).name}:{code.co_firstlineno}" if code else name


def parameters_of(operator: Any) -> tuple[tuple[str, str], ...]:
    """An operator's fields as text, less handles (they are edges of the picture), what it keeps for itself, and what is not given."""
    if not is_dataclass(operator):
        return ()
    shown = []
    for field in fields(operator):
        value = getattr(operator, field.name, None)
        is_left_out = value is None and field.default is None
        if field.init and field.repr and not is_left_out and not _is_handle(value):
            shown.append((field.name, name_of(value) if callable(value) else short(value)))
    return tuple(shown)


def _is_handle(value: Any) -> bool:
    """Whether it is a handle, or a list of them."""
    return hasattr(value[0] if isinstance(value, list | tuple) and value else value, "handle_id")


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = 80
        self.maxlong = 40

    def repr_ndarray(self, x: Any, level: int) -> str:
        return f"array(shape={x.shape}, dtype={x.dtype})"


_SHORT = _Short()


def short(value: object) -> str:
    """A value in at most about 80 characters, whatever it is; never an error.

    >>> short(list(range(100)))
    '[0, 1, 2, 3, 4, 5, ...]'
    """
    try:
        text = _SHORT.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
    return text if len(text) <= 90 else text[:87] + "..."


def operator_of(node: Node) -> str:
    """The name that the user typed: `for_each`, `gather_async`, `Concurrently`; an operator's class for `for_each(Operator())`."""
    if isinstance(node, Stage):
        fn = getattr(node.stage, "fn", None)
        if isinstance(node.stage, Put):
            return "Enqueue"
        return type(fn).__name__ if fn is not None and own_operator(fn) else node.operator
    names = {SelectShards: "select_shards", ShardUnion: "union", Repartition: "repartition", Duplicate: "duplicate", Child: "child"}
    return names.get(type(node)) or str(getattr(node, "operator", type(node).__name__))


def label_of(node: Node) -> str:
    """The node in an error: operator, what it holds, the plan's line.

    >>> from flowrl.iter.nodes import Map
    >>> label_of(Stage(line="plan.py:3", input=None, stage=Map(len), operator="for_each"))
    'for_each(len) at plan.py:3'
    """
    fn = getattr(node.stage, "fn", None) if isinstance(node, Stage) else None
    shared = getattr(node.stage if isinstance(node, Stage) else node, "queue", None)
    inside = name_of(fn) if fn is not None else short(shared) if shared is not None else getattr(node, "name", "")
    operator = node.operator if isinstance(node, Stage) and not isinstance(node.stage, Put) else operator_of(node)
    return f"{operator}({inside}) at {node.line}"
