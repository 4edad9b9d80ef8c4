import subprocess
import sys

import pytest

from flowrl import graph


def test_records_load_no_drawing_library() -> None:
    code = "import sys; import flowrl.graph.records; print(*{'networkx', 'pygraphviz', 'html'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize("name", graph.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(graph, name).__name__ in (name, "Literal") or name in ("Place", "EdgeKind")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sketch'"):
        graph.sketch  # noqa: B018
