"""A plan in Mermaid's language, which GitHub, GitLab and notebooks draw by themselves."""

from __future__ import annotations

import re

from flowrl.graph.groups import Group, grouped, picture_ids
from flowrl.graph.labels import edge_lines, location_line, operator_line, parameter_lines
from flowrl.graph.palette import INK, MESSAGE, SHADES
from flowrl.graph.records import EdgeKind, EdgeRecord, NodeRecord, PlanRecord

__all__ = ["to_mermaid"]

_ARROWS: dict[EdgeKind, str] = {"items": "-->", "queue": "==>", "message": "-.->"}


def to_mermaid(plan: PlanRecord) -> str:
    """The plan in Mermaid's language, sources on top: thin arrows carry items, thick ones pass a queue, dotted ones are messages.

    >>> print(to_mermaid(PlanRecord((NodeRecord("n0", "from_items", (("num_shards", "2"),), "shards", 2, ""),), (), root="n0")))
    flowchart TB
      subgraph box_n0["shards ×2"]
        n0("<b>from_items</b><br/>num_shards = 2"):::shards
      end
      ...
    """
    names = picture_ids(plan)
    parts = [_subgraph(group, names) for group in grouped(plan)]
    edges = [_edge(edge, names) for edge in plan.edges]
    messages = ",".join(str(index) for index, edge in enumerate(plan.edges) if edge.kind == "message")
    looks = [f"  linkStyle {messages} stroke:{MESSAGE},color:{MESSAGE}"] if messages else []
    return "\n".join(["flowchart TB", *parts, *edges, *looks, *_classes(plan), ""])


def _subgraph(group: Group, names: dict[str, str]) -> str:
    nodes = [_node(node, names) for node in group.nodes]
    if group.place == "driver":
        return "\n".join(f"  {node}" for node in nodes)
    box = f"box_{names[group.nodes[0].id]}"
    head = f'  subgraph {box}["{_markup(group.title)}"]'
    return "\n".join([head, *(f"    {node}" for node in nodes), "  end", f"  class {box} {group.place}_area"])


def _node(node: NodeRecord, names: dict[str, str]) -> str:
    location = [f"<i>{_markup(line)}</i>" for line in [location_line(node)] if line]
    lines = [f"<b>{_markup(operator_line(node))}</b>", *map(_markup, parameter_lines(node)), *location]
    return f'{names[node.id]}("{"<br/>".join(lines)}"):::{node.place}'


def _edge(edge: EdgeRecord, names: dict[str, str]) -> str:
    lines = "<br/>".join(map(_markup, edge_lines(edge)))
    label = f'|"{lines}"|' if lines else ""
    return f"  {names[edge.source]} {_ARROWS[edge.kind]}{label} {names[edge.target]}"


def _classes(plan: PlanRecord) -> list[str]:
    lines = []
    for place in [place for place in SHADES if any(node.place == place for node in plan.nodes)]:
        shade = SHADES[place]
        lines.append(f"  classDef {place} fill:{shade.fill},stroke:{shade.border},color:{INK}")
        if place != "driver":
            lines.append(f"  classDef {place}_area fill:{shade.area},stroke:{shade.border},color:{shade.text}")
    return lines


def _markup(text: str) -> str:
    """The text within a quoted label: whatever could mean more than itself to Mermaid, to Markdown or to HTML becomes a code.

    Mermaid breaks the line at a backslash and an n, even coded: a space of no width keeps them apart.
    """
    return re.sub(r"[^\w ×·…,:=@()'\[\].]|\.(?!\w)", lambda found: f"#{ord(found[0])};", text.replace("\\n", "\\\u200bn"))
