"""A plan as text, the way a database explains a query: the root on top, what feeds it below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flowrl.graph.labels import place_title, visible, whole_line
from flowrl.graph.records import EdgeRecord, Flow, PlanRecord

__all__ = ["explain"]

_Row = tuple[str, ...]
_LEGEND = "in, out: items that went into the edge to the operator above, and out of it; held: parked at its end"
_COLUMNS: _Row = ("place", "line", "in", "out", "held", "operator")


def explain(plan: PlanRecord) -> str:
    """The plan as a tree, one line an operator; for a running plan with the items that went up to the operator above.

    An operator that feeds several others is written out below the first of them. A double rail is a queue, `┄>` a message.

    >>> from flowrl.graph.records import NodeRecord
    >>> source = NodeRecord("n0", "from_range", (("n", "9"),), "shards", 2, "plan.py:3")
    >>> gather = NodeRecord("n1", "gather_sync", (), "driver", 0, "plan.py:4")
    >>> print(explain(PlanRecord((source, gather), (EdgeRecord("n0", "n1", flow=Flow(9, 8, 1)),), root="n1", engine="serial")))
    2 operators, engine: serial
    in, out: items that went into the edge to the operator above, and out of it; held: parked at its end
    place      line       in  out  held  operator
    driver     plan.py:4                 n1 gather_sync
    shards ×2  plan.py:3   9    8     1  └─ n0 from_range(n=9)
    """
    columns = [column for column in zip(_COLUMNS, *_rows(plan), strict=True) if any(column[1:])]
    cells = [_aligned(column) for column in columns]
    engine = f"engine: {visible(plan.engine)}" if plan.engine else "not running"
    head = f"{len(plan.nodes)} operator{'' if len(plan.nodes) == 1 else 's'}, {engine}"
    legend = [_LEGEND] if any(edge.flow is not None for edge in plan.edges) else []
    return "\n".join([head, *legend, *("  ".join(row).rstrip() for row in zip(*cells, strict=True))])


def _aligned(column: _Row) -> list[str]:
    width = max(map(len, column))
    return [text.rjust(width) if column[0] in ("in", "out", "held") else text.ljust(width) for text in column]


def _rows(plan: PlanRecord) -> Iterator[_Row]:
    """The tree below the root, then the trees of what the root does not reach."""
    shown: set[str] = set()
    feeding = {edge.source for edge in plan.edges if edge.kind != "message"}
    ends = [node.id for node in reversed(plan.nodes) if node.id not in feeding]
    for top in [plan.root, *ends, *(node.id for node in reversed(plan.nodes))]:
        if top not in shown:
            yield from _tree(plan, top, shown)


def _tree(plan: PlanRecord, top: str, shown: set[str]) -> Iterator[_Row]:
    """Depth first, with a stack of its own: a plan may be longer than Python's."""
    nodes = {node.id: node for node in plan.nodes}
    feeds, messages = _feeds(plan), _messages(plan)
    waiting = [(top, ("", "", ""), "", "")]
    while waiting:
        name, counts, rail, indent = waiting.pop()
        node = nodes[name]
        text = f"{visible(f'{name} {node.operator}')} (see above)" if name in shown else whole_line(node)
        yield (place_title(node.place, node.num_shards), visible(node.line), *counts, rail + text)
        if name in shown:
            continue
        shown.add(name)
        for edge in messages[name]:
            rail = "│  " if feeds[name] else "   "
            text = f"{edge.label or 'message'} to {edge.target} {nodes[edge.target].operator}"
            yield ("", "", "", "", "", f"{indent}{rail}┄> {visible(text)}")
        for is_last, edge in [(index == 0, edge) for index, edge in enumerate(reversed(feeds[name]))]:
            waiting.append((edge.source, _counts(edge.flow), indent + _rail(edge, is_last), indent + ("   " if is_last else "│  ")))


def _feeds(plan: PlanRecord) -> defaultdict[str, list[EdgeRecord]]:
    """For each node, the edges that bring it items."""
    feeds: defaultdict[str, list[EdgeRecord]] = defaultdict(list)
    for edge in plan.edges:
        if edge.kind != "message":
            feeds[edge.target].append(edge)
    return feeds


def _messages(plan: PlanRecord) -> defaultdict[str, list[EdgeRecord]]:
    """For each node, the messages that it sends."""
    messages: defaultdict[str, list[EdgeRecord]] = defaultdict(list)
    for edge in plan.edges:
        if edge.kind == "message":
            messages[edge.source].append(edge)
    return messages


def _rail(edge: EdgeRecord, is_last: bool) -> str:
    """What leads from an operator to one that feeds it.

    >>> _rail(EdgeRecord("n0", "n1", "queue", "inqueue"), is_last=True)
    '╘═ queue inqueue: '
    """
    if edge.kind == "queue":
        return ("╘═ " if is_last else "╞═ ") + visible(f"queue {edge.label}".rstrip()) + ": "
    return ("└─ " if is_last else "├─ ") + (f"{visible(edge.label)}: " if edge.label else "")


def _counts(flow: Flow | None) -> tuple[str, str, str]:
    """Items in, out and held; `?` where one is not known.

    >>> _counts(Flow(1200, None, 0)), _counts(None)
    (('1,200', '?', '0'), ('', '', ''))
    """
    if flow is None:
        return ("", "", "")
    items_in, items_out, held = ("?" if count is None else f"{count:,}" for count in (flow.items_in, flow.items_out, flow.held))
    return (items_in, items_out, held)
