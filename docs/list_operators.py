"""Writes docs/operators.md from the operators' docstrings: `python docs/list_operators.py`. A test holds the page to it."""

from __future__ import annotations

import inspect
from pathlib import Path

import flowrl
import flowrl.iter
import flowrl.ops
from flowrl.iter import LocalIterator, ParallelIterator

HEAD = """# Operators

Every operator, from its docstring (`python docs/list_operators.py` writes this page).
"""
THINGS = (
    flowrl.WorkerSet,
    flowrl.LearnerThread,
    flowrl.ReplayActor,
    flowrl.LocalReplayBuffer,
    flowrl.Queue,
    flowrl.create_colocated,
    flowrl.ParallelIteratorWorker,
    flowrl.iter.Stream,
    flowrl.engine,
    flowrl.SerialEngine,
    flowrl.RayEngine,
    flowrl.SampleBatch,
)
SOURCES = ("from_items", "from_range", "from_iterators", "from_actors", "from_iterable")


def entry(name: str, thing: object, prefix: str = "") -> str:
    """One operator: its call, then its docstring."""
    signature = inspect.signature(thing)  # type: ignore[arg-type]
    names = [
        str(parameter.replace(annotation=inspect.Parameter.empty))
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    text = inspect.getdoc(thing) or ""
    return f"### `{prefix}{name}({', '.join(names)})`\n\n{fenced(text)}\n"


def fenced(text: str) -> str:
    """Doctest examples as code."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines + (["```"] if inside else []))


def methods_of(kind: type) -> dict[str, object]:
    """Its own methods, then those that both faces share."""
    return {**vars(kind), **{name: thing for base in kind.__mro__[1:] for name, thing in vars(base).items() if name not in vars(kind)}}


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Sources\n"]
    parts += [entry(name, getattr(flowrl.iter, name)) for name in SOURCES]
    for title, kind in (("In the shards: `ParallelIterator`", ParallelIterator), ("In the driver: `LocalIterator`", LocalIterator)):
        parts.append(f"## {title}\n")
        methods = [
            name
            for name, thing in methods_of(kind).items()
            if not name.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, staticmethod))
        ]
        parts += [entry(name, getattr(kind, name), ".") for name in methods]
    parts.append("## `flowrl.ops`\n")
    parts += [entry(name, getattr(flowrl.ops, name)) for name in flowrl.ops.__all__]
    parts.append("## Handles, streams, engines\n")
    parts += [entry(thing.__name__, thing) for thing in THINGS]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("operators.md").write_text(page())
