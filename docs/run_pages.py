"""Runs the code of the pages, and writes what it prints below it and the pictures it draws into images/: `python docs/run_pages.py`.

    ```python    runs, all blocks of a page in one namespace and a folder of their own; one that begins with `# name.py` is that file
    ```text      below such a block: what it prints
    ```sh        its lines `flowrl ...` run too; `flowrl train` ends after its first result
    ```py        does not run, nor does any other

A test runs each page and compares (line numbers in plans, and spaces, may differ).
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flowrl.cli import main as flowrl

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w/]+\.py)\n")
SMALL = ["--engine", "serial", "--stop-steps", "1"]
"""Added to a `flowrl train`: all in this process, and over with the first result."""


class Block(NamedTuple):
    """A fenced block: its language, its text, and where that begins and ends in the page."""

    language: str
    text: str
    start: int
    end: int


def pages() -> list[Path]:
    """All pages, the README first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    return [Block(match[1], match[2], match.start(2), match.end(2)) for match in FENCE.finditer(page.read_text())]


def run(page: Path, folder: Path) -> str:
    """The page with what its blocks print now; what they write lies in `folder`."""
    text, parts, written, printed = page.read_text(), [], 0, ""
    names: dict[str, Any] = {"__name__": "page"}
    with contextlib.chdir(folder), _own_modules(folder):
        for block in blocks_of(page):
            if block.language == "text":
                parts += [text[written : block.start], printed]
                written = block.end
            elif block.language in ("python", "sh"):
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    if block.language == "python":
                        _run_python(block, text, page.name, names)
                    else:
                        _run_shell(block)
                printed = output.getvalue()
    return "".join([*parts, text[written:]])


def without_lines(text: str) -> str:
    """The text without what may differ: numbers of lines in plans, and how many spaces there are."""
    return " ".join(re.sub(r"(\w\.(?:py|md)):\d+", r"\1:N", text).split())


def words_of(picture: str) -> list[str]:
    """What is written in a picture (.svg)."""
    return [without_lines(word) for word in re.findall(r"<text[^>]*>([^<]*)</text>", picture)]


def pictures_of(page: Path) -> list[str]:
    """The names of the pictures that a page shows."""
    return re.findall(r"images/([\w.]+)", page.read_text())


def _run_python(block: Block, text: str, page: str, names: dict[str, Any]) -> None:
    if file := FILE.match(block.text):
        Path(file[1]).write_text(block.text)
        return
    line = text[: block.start].count("\n")
    exec(compile("\n" * line + block.text, page, "exec", dont_inherit=True), names)


def _run_shell(block: Block) -> None:
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["flowrl"]:
            code = flowrl([*words[1:], *(SMALL if words[1] == "train" else [])])
            assert code == 0, f"{line}: exit code {code}"


@contextlib.contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """Files that a page wrote can be imported by it, and are forgotten after it."""
    modules, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                del sys.modules[name]


def main() -> None:
    """Bring all pages up to date."""
    for page in pages():
        while update(page):  # what is printed may move the lines that plans name
            pass


def update(page: Path) -> bool:
    """Write what a page's blocks print and draw now; whether the page has changed."""
    before = page.read_text()
    with tempfile.TemporaryDirectory() as folder:
        page.write_text(run(page, Path(folder)))
        for name in pictures_of(page):
            if (drawn := Path(folder, name)).exists():
                (IMAGES / name).write_bytes(drawn.read_bytes())
    return page.read_text() != before


if __name__ == "__main__":
    main()
