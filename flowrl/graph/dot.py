"""A plan in Graphviz's language, and drawn by Graphviz."""

from __future__ import annotations

import re
from html import escape

import pygraphviz

from flowrl.graph.groups import Group, grouped, picture_ids
from flowrl.graph.labels import caption, edge_lines, location_line, operator_line, parameter_lines, whole_line
from flowrl.graph.palette import GREY, INK, LINE, MESSAGE, PAPER, SHADES
from flowrl.graph.records import EdgeKind, EdgeRecord, NodeRecord, PlanRecord

__all__ = ["to_dot", "to_png", "to_svg"]

_FONT = "Helvetica,Arial,sans-serif"
_HEAD = f"""digraph plan {{
  graph [bgcolor="{PAPER}" fontname="{_FONT}" fontsize=11 fontcolor="{GREY}" labeljust=r newrank=true nodesep=0.4 ranksep=0.42 pad=0.15]
  node [shape=box style="rounded,filled" fontname="{_FONT}" fontsize=10 fontcolor="{GREY}" penwidth=1.2 margin="0.25,0.1"]
  edge [fontname="{_FONT}" fontsize=10 fontcolor="{GREY}" color="{LINE}" penwidth=1.2 arrowsize=0.75]"""
_EDGE_LOOKS: dict[EdgeKind, str] = {
    "items": "class=items",
    "queue": f'class=queue color="{LINE}:{LINE}"',
    "message": f'class=message style=dashed constraint=false arrowhead=vee color="{MESSAGE}" fontcolor="{MESSAGE}"',
}


def to_dot(plan: PlanRecord) -> str:
    """The plan in Graphviz's language, sources on top: a line for each node and each edge, a cluster for each group outside the driver.

    >>> print(to_dot(PlanRecord((NodeRecord("n0", "from_items", (), "driver", 0, ""),), (), root="n0")), end="")
    digraph plan {
      ...
      n0 [label=<<table ...><tr><td><b><font ...>from_items</font></b></td></tr></table>> class=driver ...]
      {rank=source n0}
    }
    """
    names = picture_ids(plan)
    parts = [_cluster(group, names) for group in grouped(plan)]
    edges = [_edge(edge, names) for edge in plan.edges]
    fed = {edge.target for edge in plan.edges if edge.kind != "message"}
    sources = " ".join(names[node.id] for node in plan.nodes if node.id not in fed)
    return "\n".join([_HEAD, f"  label=<{_markup(caption(plan))}>", *parts, f"  {{rank=source {sources}}}", *edges, "}", ""])


def to_svg(plan: PlanRecord) -> str:
    """The plan as an SVG picture; a node's whole text is its `<title>`, which a browser shows under the pointer."""
    svg = _render(plan, "svg", dots_per_inch=72).decode()
    svg = re.sub(r"<!DOCTYPE.*?>\n|<!--.*?-->\n|<title>(?!n\d+</title>).*?</title>\n", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="\w+" class="node.*?</g>', lambda node: _centred(node[0]), svg, flags=re.DOTALL)
    titles = dict(zip(picture_ids(plan).values(), map(whole_line, plan.nodes), strict=True))
    return re.sub(r"(?<=<title>)n\d+(?=</title>)", lambda name: escape(titles[name[0]]), svg)


def to_png(plan: PlanRecord) -> bytes:
    """The plan as a PNG picture, sharp enough for a page in print."""
    return _render(plan, "png", dots_per_inch=192)


def _render(plan: PlanRecord, suffix: str, dots_per_inch: int) -> bytes:
    graph = pygraphviz.AGraph(string=to_dot(plan))
    graph.graph_attr["dpi"] = str(dots_per_inch)
    picture: bytes = graph.draw(format=suffix, prog="dot")
    return picture


def _centred(node: str) -> str:
    """A node's lines set about its middle: a browser's letters are never quite as wide as Graphviz takes them to be."""
    outline = re.findall(r"(-?[\d.]+),-?[\d.]+", node.partition(' d="')[2].partition('"')[0])
    middle = (min(map(float, outline)) + max(map(float, outline))) / 2
    return re.sub(r'text-anchor="start" x="[^"]*"', f'text-anchor="middle" x="{middle:.2f}"', node)


def _cluster(group: Group, names: dict[str, str]) -> str:
    nodes = [_node(node, names) for node in group.nodes]
    if group.place == "driver":
        return "\n".join(f"  {node}" for node in nodes)
    shade = SHADES[group.place]
    look = f'style="rounded,filled" color="{shade.border}" fillcolor="{shade.area}" fontcolor="{shade.text}" penwidth=0.6'
    head = f"graph [label=<{_markup(group.title)}> class={group.place} {look} labeljust=l margin=12]"
    return "\n".join([f"  subgraph cluster_{names[group.nodes[0].id]} {{", *(f"    {line}" for line in (head, *nodes)), "  }"])


def _node(node: NodeRecord, names: dict[str, str]) -> str:
    shade = SHADES[node.place]
    rows = [
        f'<b><font point-size="13" color="{INK}">{_markup(operator_line(node))}</font></b>',
        *map(_markup, parameter_lines(node)),
        *(f"<i>{_markup(line)}</i>" for line in [location_line(node)] if line),
    ]
    table = "".join(f"<tr><td>{row}</td></tr>" for row in rows)
    look = f'class={node.place} color="{shade.border}" fillcolor="{shade.fill}"'
    return f'{names[node.id]} [label=<<table border="0" cellspacing="0" cellpadding="1">{table}</table>> {look}]'


def _edge(edge: EdgeRecord, names: dict[str, str]) -> str:
    text = "".join(f' {_markup(line)} <br align="left"/>' for line in edge_lines(edge))
    return f"  {names[edge.source]} -> {names[edge.target]} [{f'label=<{text}> ' if text else ''}{_EDGE_LOOKS[edge.kind]}]"


def _markup(text: str) -> str:
    """The text within a label. Graphviz replaces `\\N` by the node's name there, and `\\\\` by one backslash."""
    return escape(text).replace("\\", "&#92;&#92;")
