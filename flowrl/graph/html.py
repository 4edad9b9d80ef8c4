"""A plan as one page that needs nothing else: the picture, its text and a table of its operators."""

from __future__ import annotations

from html import escape

from flowrl.graph.dot import to_svg
from flowrl.graph.labels import place_title, visible
from flowrl.graph.palette import GREY, SHADES
from flowrl.graph.records import NodeRecord, PlanRecord
from flowrl.graph.text import explain

__all__ = ["to_html"]


def to_html(plan: PlanRecord) -> str:
    """The plan as a page for a browser, offline too: the picture can be moved and zoomed, and is readable by day and by night.

    >>> page = to_html(PlanRecord((NodeRecord("n0", "a<b", (), "driver", 0, "plan.py:3"),), (), root="n0"))
    >>> page.splitlines()[0], "<td>a&lt;b</td>" in page
    ('<!doctype html>', True)
    """
    root = next((node.operator for node in plan.nodes if node.id == plan.root), plan.root)
    picture = to_svg(plan).partition("?>\n")[2]
    rows = "\n".join(_row(node) for node in plan.nodes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(visible(root))} · flowrl plan</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(visible(root))}</h1>
<figure>
{picture}<figcaption>drag to move · Ctrl and wheel to zoom · double-click for the whole picture</figcaption>
</figure>
<h2>Explained</h2>
<pre>{escape(explain(plan))}</pre>
<h2>Operators</h2>
<div class="wide"><table>
<thead><tr><th>id</th><th>operator</th><th>parameters</th><th>place</th><th>line</th></tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _row(node: NodeRecord) -> str:
    parameters = "<br>".join(escape(visible(f"{name} = {value}")) for name, value in node.parameters)
    place = f'<span class="{node.place}">{place_title(node.place, node.num_shards)}</span>'
    cells = [escape(visible(node.id)), escape(visible(node.operator)), parameters, place, escape(visible(node.line))]
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


_DAY = "\n".join(f"span.{place} {{ background: {shade.fill}; color: {shade.text}; }}" for place, shade in SHADES.items())
_NIGHT = "\n".join(
    f"""  span.{place} {{ background: {shade.night}; color: {shade.fill}; }}
  .node.{place} path {{ fill: {shade.night}; }}
  .cluster.{place} path {{ fill: {shade.night}40; }}
  .cluster.{place} text {{ fill: {shade.border}; }}"""
    for place, shade in SHADES.items()
)
_STYLE = f"""
:root {{ color-scheme: light dark; --paper: #ffffff; --ink: #1f2933; --soft: {GREY}; --rule: #d9dfe5; --area: #f5f7f9; }}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 Helvetica, Arial, sans-serif; }}
main {{ max-width: 1100px; margin: 0 auto; padding: 1.5rem; }}
h1 {{ font-size: 1.5rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
figure {{ margin: 0; border: 1px solid var(--rule); border-radius: 10px; overflow: hidden; }}
figure svg {{ display: block; width: 100%; height: auto; max-height: 85vh; cursor: grab; touch-action: none; }}
figcaption {{ padding: .4rem .8rem; border-top: 1px solid var(--rule); color: var(--soft); font-size: .8rem; }}
.graph > polygon {{ fill: none; }}
pre {{ padding: 1rem; border-radius: 10px; background: var(--area); overflow-x: auto; }}
pre {{ font: 13px/1.5 Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: .9rem; }}
th, td {{ padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }}
td {{ overflow-wrap: anywhere; }}
th {{ color: var(--soft); font-weight: normal; }}
td:nth-child(2) {{ font-weight: bold; }}
td span {{ padding: .1rem .5rem; border-radius: 6px; white-space: nowrap; }}
{_DAY}
@media (prefers-color-scheme: dark) {{
  :root {{ --paper: #14191f; --ink: #e4e9ee; --soft: #9fb0c0; --rule: #36424e; --area: #1c232b; }}
  svg text {{ fill: #e4e9ee; }}
  svg text[fill="{GREY}"] {{ fill: #b0bec9; }}
  .edge path, .edge polygon, .edge polyline {{ stroke: #93a4b3; }}
  .edge polygon {{ fill: #93a4b3; }}
  .message path, .message polygon, .message polyline {{ stroke: #d992c4; }}
  .message text, .message polygon {{ fill: #d992c4; }}
{_NIGHT}
}}
"""
_SCRIPT = """
const svg = document.querySelector("figure svg"), box = svg.viewBox.baseVal;
const whole = [box.x, box.y, box.width, box.height];
const show = (x, y, width, height) => svg.setAttribute("viewBox", [x, y, width, height].join(" "));
svg.addEventListener("wheel", event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const scale = event.deltaY > 0 ? 1.15 : 1 / 1.15;
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  show(at.x + (box.x - at.x) * scale, at.y + (box.y - at.y) * scale, box.width * scale, box.height * scale);
}, { passive: false });
svg.addEventListener("pointermove", event => {
  if (event.buttons !== 1) return;
  const unit = svg.getScreenCTM().a;
  show(box.x - event.movementX / unit, box.y - event.movementY / unit, box.width, box.height);
});
svg.addEventListener("dblclick", () => show(...whole));
"""
