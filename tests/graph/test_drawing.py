from dataclasses import replace
from pathlib import Path

import pytest

from flowrl.graph.dot import to_dot, to_png, to_svg
from flowrl.graph.drawing import draw
from flowrl.graph.html import to_html
from flowrl.graph.mermaid import to_mermaid
from flowrl.graph.records import EdgeRecord

from .plans import HARMFUL_TEXTS, everywhere, ppo


@pytest.mark.parametrize("suffix, to_text", [(".mmd", to_mermaid), (".dot", to_dot), (".svg", to_svg), (".html", to_html)])
def test_suffix_chooses_the_format(tmp_path: Path, suffix: str, to_text) -> None:
    path = draw(ppo(), tmp_path / f"plan{suffix}")
    assert path.read_bytes().decode() == to_text(ppo())


def test_png_is_written_as_bytes(tmp_path: Path) -> None:
    assert draw(ppo(), tmp_path / "plan.png").read_bytes() == to_png(ppo())


def test_path_may_be_a_string_with_a_suffix_in_capitals(tmp_path: Path) -> None:
    assert draw(ppo(), str(tmp_path / "PLAN.MMD")) == tmp_path / "PLAN.MMD"


def test_missing_folders_are_made(tmp_path: Path) -> None:
    assert draw(ppo(), tmp_path / "a" / "b" / "plan.mmd").exists()


@pytest.mark.parametrize("name", ["plan.pdf", "plan", "plan.svg.txt"])
def test_unknown_suffix_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"got the suffix .*, expected \.mmd, \.dot, \.svg, \.png or \.html; name the file 'plan.*\.svg'"):
        draw(ppo(), tmp_path / "folder" / name)
    assert list(tmp_path.iterdir()) == []


def test_failed_drawing_leaves_the_old_file(tmp_path: Path) -> None:
    path = draw(ppo(), tmp_path / "plan.mmd")
    broken = replace(ppo(), edges=(EdgeRecord("n0", "nowhere"),))
    with pytest.raises(KeyError):
        draw(broken, path)
    assert path.read_text() == to_mermaid(ppo())


def test_failed_writing_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "plan.mmd").mkdir()
    with pytest.raises(IsADirectoryError):
        draw(ppo(), tmp_path / "plan.mmd")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.mmd"]


@pytest.mark.parametrize("text", HARMFUL_TEXTS)
def test_every_text_can_be_written(tmp_path: Path, text: str) -> None:
    for suffix in ("mmd", "dot", "svg", "html"):
        assert draw(everywhere(text), tmp_path / f"plan.{suffix}").exists()
