"""The pages' code runs, each page in one namespace and a folder of its own, and prints and draws what they show."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RUN_PAGES = SimpleNamespace(**runpy.run_path(str(DOCS / "run_pages.py")))
LIST_CONFIGS = SimpleNamespace(**runpy.run_path(str(DOCS / "list_configs.py")))
PAGES = RUN_PAGES.pages()
SAY_IT_THEMSELVES = {"seed", "min_time_s_per_reporting"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs_and_prints_and_draws_what_it_shows(page, tmp_path):
    text = RUN_PAGES.run(page, tmp_path)
    assert RUN_PAGES.without_lines(text) == RUN_PAGES.without_lines(page.read_text()), "run `python docs/run_pages.py`"
    drawn = [name for name in RUN_PAGES.pictures_of(page) if (tmp_path / name).exists()]
    for name in drawn:
        words = RUN_PAGES.words_of((tmp_path / name).read_text())
        assert RUN_PAGES.words_of((DOCS / "images" / name).read_text()) == words, "run `python docs/run_pages.py`"


@pytest.mark.parametrize("name", ["how_it_works", "migration", "quickstart", "reading_a_plan", "replay_and_learners", "README"])
def test_a_page_checks_its_results(name):
    (page,) = [page for page in PAGES if page.stem == name]
    blocks = RUN_PAGES.blocks_of(page)
    checked = sum("assert " in block.text for block in blocks if block.language == "python")
    assert checked + sum(block.language == "text" for block in blocks) >= 3


@pytest.mark.parametrize("name", ["reading_a_plan", "replay_and_learners"])
def test_every_picture_of_a_page_about_plans_is_drawn_by_its_code(name, tmp_path):
    page = DOCS / f"{name}.md"
    RUN_PAGES.run(page, tmp_path)
    assert RUN_PAGES.pictures_of(page)
    assert all((tmp_path / name).exists() for name in RUN_PAGES.pictures_of(page))


def test_every_operator_stands_in_the_operators_page_with_its_docstring():
    page = runpy.run_path(str(DOCS / "list_operators.py"))["page"]()
    assert (DOCS / "operators.md").read_text() == page, "run `python docs/list_operators.py`"


def test_every_setting_of_every_algorithm_stands_in_the_settings_page_with_its_text():
    assert (DOCS / "configs.md").read_text() == LIST_CONFIGS.page(), "run `python docs/list_configs.py`"


@pytest.mark.parametrize("name", LIST_CONFIGS.known_algorithms())
def test_a_setting_says_what_it_is(name):
    settings = LIST_CONFIGS.settings_of(LIST_CONFIGS.find_algorithm(name).config_class()).values()
    assert {setting.name for setting in settings if not setting.text} <= SAY_IT_THEMSELVES
    beginnings = [setting.text[:35] for setting in settings if setting.text]
    assert len(set(beginnings)) == len(beginnings), "two settings say the same: one has the other's text"


def test_links_of_the_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)|src=\"([^\"]+)\"", page.read_text()):
            assert (page.parent / (target[0] or target[1])).exists(), f"{page.name}: {target}"
