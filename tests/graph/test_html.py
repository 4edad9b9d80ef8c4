import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings

from flowrl.graph.html import to_html
from flowrl.graph.labels import visible
from flowrl.graph.text import explain

from .plans import HARMFUL_TEXTS, apex, everywhere, ppo, running_diamond
from .reading import texts


class _Page(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, text: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += text


def test_page_holds_the_explanation() -> None:
    assert _Page(to_html(running_diamond())).texts["pre"] == [explain(running_diamond())]


def test_table_has_a_row_for_each_operator() -> None:
    page = _Page(to_html(apex()))
    assert page.texts["td"][1::5] == [node.operator for node in apex().nodes]


def test_page_needs_no_other_file() -> None:
    page = to_html(apex())
    assert {"src", "href", "xlink:href", "data"}.isdisjoint(_Page(page).attributes)
    assert not re.search(r"url\(|@import|fetch|import\(", page)
    assert set(re.findall(r"https?://[^\"]*", page)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_same_record_gives_the_same_page() -> None:
    assert to_html(ppo()) == to_html(ppo())


@pytest.mark.parametrize("text", HARMFUL_TEXTS)
def test_harmful_text_adds_no_element_and_no_attribute(text: str) -> None:
    plain, page = _Page(to_html(everywhere("plain"))), _Page(to_html(everywhere(text)))
    assert (page.tags, page.attributes, page.texts["script"]) == (plain.tags, plain.attributes, plain.texts["script"])


@settings(deadline=None, max_examples=40)
@given(texts)
def test_every_text_is_whole_in_the_table(text: str) -> None:
    page = _Page(to_html(everywhere(text)))
    assert page.tags.count("script") == 1
    assert page.texts["td"][1::5] == [visible(text)] * 3
