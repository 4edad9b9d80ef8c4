"""A plan as a file: one function, the format by the file's suffix."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from flowrl.graph.dot import to_dot, to_png, to_svg
from flowrl.graph.html import to_html
from flowrl.graph.mermaid import to_mermaid
from flowrl.graph.records import PlanRecord

__all__ = ["draw"]

_WRITERS: dict[str, Callable[[PlanRecord], str | bytes]] = {
    ".mmd": to_mermaid,
    ".dot": to_dot,
    ".svg": to_svg,
    ".png": to_png,
    ".html": to_html,
}


def draw(plan: PlanRecord, path: str | os.PathLike[str]) -> Path:
    """The file with the plan's picture: Mermaid `.mmd`, Graphviz `.dot`, `.svg`, `.png` or a page `.html` that needs nothing else.

    Folders that are missing are made. A file that is there is replaced at once, or not at all where drawing fails.

    >>> from flowrl.graph.records import NodeRecord
    >>> plan = PlanRecord((NodeRecord("n0", "from_range", (), "driver", 0, ""),), (), root="n0")
    >>> draw(plan, "plan.pdf")
    Traceback (most recent call last):
    ...
    ValueError: cannot draw a plan as 'plan.pdf': got the suffix '.pdf', expected .mmd, .dot, .svg, .png or .html;
    name the file 'plan.svg', say
    """
    path = Path(path)
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        *most, last = _WRITERS
        raise ValueError(
            f"cannot draw a plan as {str(path)!r}: got the suffix {path.suffix!r}, expected {', '.join(most)} or {last}; "
            f"name the file {path.stem + '.svg'!r}, say"
        )
    picture = writer(plan)
    _replace(path, picture if isinstance(picture, bytes) else picture.encode())
    return path


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
