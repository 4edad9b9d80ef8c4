import pytest
from hypothesis import given

from flowrl.graph.labels import visible
from flowrl.graph.records import EdgeRecord, PlanRecord
from flowrl.graph.text import explain

from .plans import apex, everywhere, node, ppo, running_diamond, single
from .reading import golden, texts


@pytest.mark.parametrize("plan", [ppo, apex, running_diamond])
def test_explanation_reads_as_judged(plan) -> None:
    assert explain(plan()) == golden(f"{plan.__name__}.txt")


def test_single_node_needs_no_tree() -> None:
    assert explain(single()) == "1 operator, not running\nplace   operator\ndriver  n0 from_iterable"


def test_cycle_ends_where_it_began() -> None:
    plan = PlanRecord((node(0, "a"), node(1, "b")), (EdgeRecord("n0", "n1"), EdgeRecord("n1", "n0", "queue")), root="n1")
    assert explain(plan).splitlines()[2:] == ["driver  n1 b", "driver  └─ n0 a", "driver     ╘═ queue: n1 b (see above)"]


def test_nodes_that_the_root_does_not_reach_are_told_after_it() -> None:
    plan = PlanRecord((node(0, "a"), node(1, "b"), node(2, "c")), (EdgeRecord("n0", "n1"),), root="n2")
    assert explain(plan).splitlines()[2:] == ["driver  n2 c", "driver  n1 b", "driver  └─ n0 a"]


def test_label_of_an_items_edge_is_told() -> None:
    plan = PlanRecord((node(0, "a"), node(1, "b")), (EdgeRecord("n0", "n1", label="train"),), root="n1")
    assert explain(plan).splitlines()[-1] == "driver  └─ train: n0 a"


def test_plan_longer_than_the_stack_is_explained() -> None:
    nodes = tuple(node(index, "for_each") for index in range(3000))
    edges = tuple(EdgeRecord(f"n{index}", f"n{index + 1}") for index in range(2999))
    assert explain(PlanRecord(nodes, edges, root="n2999")).count("for_each") == 3000


@given(texts)
def test_every_text_is_whole_and_on_its_line(text: str) -> None:
    lines = explain(everywhere(text)).split("\n")
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)
    assert f"n2 {visible(text)}".rstrip() in lines[2]
    assert f"{visible(text)}({visible(text)}={visible(text)}, fn={visible(text)})" in lines[5]
