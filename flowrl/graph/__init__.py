"""The picture of a plan: plain records in; a drawing, a graph or a text out. A function's module is loaded when it is first used.

>>> from flowrl import graph
>>> graph.draw
<function draw at ...>
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowrl.graph.records import EdgeKind, EdgeRecord, Flow, NodeRecord, Place, PlanRecord

if TYPE_CHECKING:
    from flowrl.graph.dot import to_dot, to_png, to_svg
    from flowrl.graph.drawing import draw
    from flowrl.graph.html import to_html
    from flowrl.graph.mermaid import to_mermaid
    from flowrl.graph.network import to_networkx
    from flowrl.graph.text import explain

__all__ = [
    "EdgeKind",
    "EdgeRecord",
    "Flow",
    "NodeRecord",
    "Place",
    "PlanRecord",
    "draw",
    "explain",
    "to_dot",
    "to_html",
    "to_mermaid",
    "to_networkx",
    "to_png",
    "to_svg",
]

_MODULE_OF = {
    "draw": "drawing",
    "explain": "text",
    "to_dot": "dot",
    "to_html": "html",
    "to_mermaid": "mermaid",
    "to_networkx": "network",
    "to_png": "dot",
    "to_svg": "dot",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
