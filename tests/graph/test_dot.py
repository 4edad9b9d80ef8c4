from xml.etree import ElementTree

import pygraphviz
import pytest
from hypothesis import given, settings

from flowrl.graph.dot import to_dot, to_png, to_svg
from flowrl.graph.labels import edge_lines, location_line, operator_line, parameter_lines, shortened, whole_line
from flowrl.graph.records import EdgeRecord, NodeRecord, PlanRecord

from .plans import HARMFUL_TEXTS, apex, diamond, everywhere, node, ppo, running_diamond, single
from .reading import golden, svg_lines, svg_titles, texts


def _label_lines(label: str) -> list[str]:
    """The lines of a node's label; Graphviz reads two backslashes as one."""
    rows = ElementTree.fromstring(label).iter("td")
    return ["".join(row.itertext()).replace("\\\\", "\\") for row in rows]


@pytest.mark.parametrize("plan", [ppo, apex, running_diamond])
def test_dot_reads_as_judged(plan) -> None:
    assert to_dot(plan()) == golden(f"{plan.__name__}.dot")


@pytest.mark.parametrize("plan", [single, ppo, apex, diamond])
def test_graphviz_reads_every_node_and_edge(plan) -> None:
    graph = pygraphviz.AGraph(string=to_dot(plan()))
    assert graph.number_of_nodes() == len(plan().nodes)
    assert set(graph.edges()) == {(edge.source, edge.target) for edge in plan().edges}
    assert graph.number_of_edges() == len(plan().edges)


@given(texts)
def test_graphviz_reads_every_text_back(text: str) -> None:
    plan = everywhere(text)
    graph = pygraphviz.AGraph(string=to_dot(plan))
    for name, record in zip(graph.nodes(), plan.nodes, strict=True):
        assert _label_lines(graph.get_node(name).attr["label"]) == [operator_line(record), *parameter_lines(record), location_line(record)]


@settings(deadline=None, max_examples=60)
@given(texts)
def test_svg_shows_every_text_as_itself(text: str) -> None:
    plan = everywhere(text)
    svg = to_svg(plan)
    lines = svg_lines(svg)
    for record in plan.nodes:
        assert {operator_line(record), *parameter_lines(record), location_line(record)} <= set(lines)
    for edge in plan.edges:
        assert {f" {line} " for line in edge_lines(edge)} <= set(lines)
    assert f"outside the boxes: driver · engine: {shortened(text, 36)}" in lines
    assert sorted(svg_titles(svg)) == sorted(whole_line(record) for record in plan.nodes)


@pytest.mark.parametrize("text", HARMFUL_TEXTS)
def test_svg_has_no_element_but_those_of_a_picture(text: str) -> None:
    tags = {element.tag.partition("}")[2] for element in ElementTree.fromstring(to_svg(everywhere(text))).iter()}
    assert tags == {"svg", "g", "title", "path", "polygon", "text"}


def test_long_names_are_short_in_the_picture_and_whole_in_the_title() -> None:
    name = "very_long_name_" * 14
    svg = to_svg(PlanRecord((NodeRecord("n0", name, (), "driver", 0, ""),), (), root="n0"))
    assert "very_long_name_ver…e_very_long_name_" in svg_lines(svg)
    assert svg_titles(svg) == [f"n0 {name}"]


def test_svg_names_no_program_and_no_address_but_its_namespaces() -> None:
    svg = to_svg(apex())
    assert "raphviz" not in svg
    assert "<!" not in svg
    assert svg.count("http") == 2


def test_lines_of_a_node_stand_about_its_middle() -> None:
    svg = to_svg(ppo())
    assert svg.count('text-anchor="middle"') == 7 + 7 + 6  # operators, lines, parameters


def test_two_edges_between_the_same_nodes_are_both_drawn() -> None:
    plan = PlanRecord((node(0, "a"), node(1, "b")), (EdgeRecord("n0", "n1"), EdgeRecord("n0", "n1", "message", "priorities")), root="n1")
    assert to_svg(plan).count('class="edge') == 2


def test_plan_that_is_one_ring_is_drawn() -> None:
    plan = PlanRecord((node(0, "a"), node(1, "b")), (EdgeRecord("n0", "n1"), EdgeRecord("n1", "n0")), root="n1")
    assert {"a", "b"} <= set(svg_lines(to_svg(plan)))


def test_same_record_gives_the_same_bytes() -> None:
    assert (to_dot(apex()), to_svg(apex()), to_png(apex())) == (to_dot(apex()), to_svg(apex()), to_png(apex()))


def test_png_is_sharp_enough_for_print() -> None:
    png = to_png(single())
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) > 300  # pixels across one box


@pytest.mark.parametrize("text", HARMFUL_TEXTS)
def test_png_is_drawn_whatever_the_texts(text: str) -> None:
    assert to_png(everywhere(text)).startswith(b"\x89PNG")
