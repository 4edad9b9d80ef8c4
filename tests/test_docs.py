"""The pages' code blocks run, each page in one namespace, and end in what they say."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(page: Path) -> list[tuple[int, str]]:
    text = page.read_text()
    return [
        (text[: match.start(1)].count("\n"), match[1]) for match in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for line, code in blocks_of(page):
        exec(compile("\n" * line + code, page.name, "exec"), names)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "how_it_works.md"], ids=lambda page: page.name)
def test_a_page_checks_its_results(page):
    assert sum("assert " in code for _, code in blocks_of(page)) >= 3


def test_every_operator_stands_in_the_operators_page_with_its_docstring():
    page = runpy.run_path(str(ROOT / "docs" / "list_operators.py"))["page"]()
    assert (ROOT / "docs" / "operators.md").read_text() == page, "run `python docs/list_operators.py`"


def test_links_of_the_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)|src=\"([^\"]+)\"", page.read_text()):
            assert (page.parent / (target[0] or target[1])).exists(), f"{page.name}: {target}"
