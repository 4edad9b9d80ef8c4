import re

import pytest
from hypothesis import given

from flowrl.graph.labels import edge_lines, operator_line
from flowrl.graph.mermaid import to_mermaid

from .plans import apex, everywhere, ppo, running_diamond, single
from .reading import golden, mermaid_lines, texts

_LABEL = r"""(?:</?[bi]>|<br/>|[\w ×·…,:=@()'\[\].]|#\d+;)*"""
_NODE = re.compile(rf' +n\d+\("({_LABEL})"\):::(?:driver|shards|learner)')
_EDGE = re.compile(rf'  n\d+ (?:-->|==>|-\.->)(?:\|"({_LABEL})"\|)? n\d+')


@pytest.mark.parametrize("plan", [ppo, apex, running_diamond])
def test_mermaid_reads_as_judged(plan) -> None:
    assert to_mermaid(plan()) == golden(f"{plan.__name__}.mmd")


def test_single_driver_node_has_no_box_and_no_arrow() -> None:
    assert to_mermaid(single()).splitlines() == [
        "flowchart TB",
        '  n0("<b>from_iterable</b>"):::driver',
        "  classDef driver fill:#e1eefa,stroke:#4a90c2,color:#1f2933",
    ]


@given(texts)
def test_every_text_is_one_quoted_label_and_reads_as_itself(text: str) -> None:
    plan = everywhere(text)
    lines = to_mermaid(plan).splitlines()
    nodes = [found[1] for line in lines if (found := _NODE.fullmatch(line))]
    edges = [found[1] for line in lines if (found := _EDGE.fullmatch(line))]
    assert [mermaid_lines(label)[0] for label in nodes] == [operator_line(node) for node in plan.nodes]
    assert [mermaid_lines(label) for label in edges] == [edge_lines(edge) for edge in plan.edges]
    assert len(lines) == 19  # 2 boxes of 4 lines, 1 node, 3 edges, 6 looks and the head


def test_backslash_and_n_do_not_break_the_line() -> None:
    assert r"#92;#8203;n" in to_mermaid(everywhere("a\nb"))
