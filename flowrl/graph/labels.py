"""The words in a picture: text made harmless and short. Not their markup: each format escapes for itself."""

from __future__ import annotations

from flowrl.graph.records import EdgeRecord, Flow, NodeRecord, Place, PlanRecord

__all__ = [
    "caption",
    "edge_lines",
    "flow_lines",
    "location_line",
    "operator_line",
    "parameter_lines",
    "place_title",
    "shortened",
    "visible",
    "whole_line",
]

_MAX_OPERATOR = 36
_MAX_PARAMETER = 44
_MAX_PARAMETERS = 6


def visible(text: str) -> str:
    r"""The text with all that cannot be seen (newlines, escapes, right-to-left marks, lone surrogates) written as Python does.

    >>> print(visible("a\tb\x1b[31m"))
    a\tb\x1b[31m
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shortened(text: str, max_characters: int) -> str:
    """The text, visible, without its middle where it is too long: a function's name and its line are at the two ends.

    >>> shortened("double_all_the_rewards @ experiments/plan.py:3", 24)
    'double_all_t…s/plan.py:3'
    """
    text = visible(text)
    if len(text) <= max_characters:
        return text
    num_last = (max_characters - 1) // 2
    return f"{text[: max_characters - 1 - num_last]}…{text[-num_last:]}"


def operator_line(node: NodeRecord) -> str:
    """The operator, short enough for a box."""
    return shortened(node.operator, _MAX_OPERATOR) or "?"


def parameter_lines(node: NodeRecord) -> list[str]:
    """One line a parameter, short enough for a box; the last tells how many are left out.

    >>> parameter_lines(NodeRecord("n0", "gather_async", (("num_async", "2"), ("batch_ms", "0")), "driver", 0, ""))
    ['num_async = 2', 'batch_ms = 0']
    """
    lines = [shortened(f"{name} = {value}", _MAX_PARAMETER) for name, value in node.parameters]
    if len(lines) <= _MAX_PARAMETERS:
        return lines
    return [*lines[: _MAX_PARAMETERS - 1], f"… {len(lines) - _MAX_PARAMETERS + 1} more"]


def location_line(node: NodeRecord) -> str:
    """The line of the plan, short enough for a box; empty where it is not known."""
    return shortened(node.line, _MAX_PARAMETER)


def whole_line(node: NodeRecord) -> str:
    """The operator and its parameters on one line, nothing left out.

    >>> whole_line(NodeRecord("n0", "gather_async", (("num_async", "2"), ("batch_ms", "0")), "driver", 0, ""))
    'n0 gather_async(num_async=2, batch_ms=0)'
    """
    parameters = ", ".join(f"{name}={value}" for name, value in node.parameters)
    return visible(f"{node.id} {node.operator}({parameters})" if parameters else f"{node.id} {node.operator}")


def place_title(place: Place, num_shards: int) -> str:
    """Where a node runs, in words.

    >>> place_title("shards", 2), place_title("driver", 0)
    ('shards ×2', 'driver')
    """
    return f"shards ×{num_shards}" if place == "shards" else place


def caption(plan: PlanRecord) -> str:
    """What the boxes of a picture cannot tell: where the other nodes run, and on which engine.

    >>> caption(PlanRecord((NodeRecord("n0", "from_iterable", (), "driver", 0, ""),), (), root="n0", engine="serial"))
    'all in the driver · engine: serial'
    """
    boxes = any(node.place != "driver" for node in plan.nodes)
    where = "outside the boxes: driver" if boxes else "all in the driver"
    return f"{where} · engine: {shortened(plan.engine, _MAX_OPERATOR)}" if plan.engine else where


def edge_lines(edge: EdgeRecord) -> list[str]:
    """What is written beside an edge: its label ("queue" or "message" where it has none), then what has passed.

    >>> edge_lines(EdgeRecord("n0", "n1", "queue", flow=Flow(1200, 1184, 16)))
    ['queue', '1,200 in · 1,184 out', '16 held']
    """
    label = shortened(edge.label, _MAX_OPERATOR) or ("" if edge.kind == "items" else edge.kind)
    return [label, *flow_lines(edge.flow)] if label else flow_lines(edge.flow)


def flow_lines(flow: Flow | None) -> list[str]:
    """What has passed an edge: one count where all that went in came out, nothing where nothing is known.

    >>> flow_lines(Flow(1200, 1200, 0)), flow_lines(Flow(3, 1, None)), flow_lines(None)
    (['1,200'], ['3 in · 1 out'], [])
    """
    if flow is None:
        return []
    if flow.items_in is not None and flow.items_in == flow.items_out and not flow.held:
        return [f"{flow.items_in:,}"]
    passed = [f"{count:,} {way}" for count, way in ((flow.items_in, "in"), (flow.items_out, "out")) if count is not None]
    held = [f"{flow.held:,} held"] if flow.held else []
    return [*([" · ".join(passed)] if passed else []), *held]
