"""How the tests read pictures back, and the texts that they put in."""

from __future__ import annotations

import html
import re
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import strategies as st

_SVG = "{http://www.w3.org/2000/svg}"
_SPECIAL = [
    *"<>&\"'[](){}|\\%#;`*_~-=:/.,? \t\n\r\0\x1b\x7f\u202e\u200d\u2028\xa0\ud800\ufffeé强🎲nNGE0",
    "\\N",
    "</",
    "<!--",
    "-->",
    "]]>",
    "&lt;",
    "#35;",
]

texts = st.lists(st.one_of(st.sampled_from(_SPECIAL), st.characters()), min_size=1, max_size=8).map("".join)


def golden(name: str) -> str:
    return (Path(__file__).parent / "golden" / name).read_text()


def svg_lines(svg: str) -> list[str]:
    """The text elements of an SVG picture, in order."""
    return [spaced("".join(element.itertext())) for element in ElementTree.fromstring(svg).iter(f"{_SVG}text")]


def svg_titles(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{_SVG}title")]


def spaced(text: str) -> str:
    """Graphviz sets every second space as one that does not break."""
    return text.replace("\xa0", " ")


def mermaid_lines(label: str) -> list[str]:
    """A Mermaid label's lines as a reader sees them."""
    coded = re.sub(r"</?[bi]>", "", label)
    return [html.unescape(re.sub(r"#(\d+);", r"&#\1;", line)).replace("\u200b", "") for line in coded.split("<br/>")]
