"""The layers of docs/how_it_works.md: a module imports only from its own row or the rows above it."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "flowrl"
ROWS = [
    {"errors"},
    {"metrics", "graph"},
    {"iter"},
    {"batch", "config", "references", "schedules", "env", "policy", "replay", "rollout", "learner"},
    {"ops"},
    {"algorithms"},
    {"trainer", "runs", "cli", "compat", "__main__", "__init__"},
]
ROW_OF = {name: number for number, row in enumerate(ROWS, 1) for name in row}
MODULES = sorted(PACKAGE.rglob("*.py"))

LAZY = {"__init__.py", "config.py", "graph/__init__.py", "ops/__init__.py", "iter/choose.py", "cli/__init__.py", "cli/app.py"}
"""Modules that load a part of flowrl when it is first used (PEP 562), the Ray engine when it is first asked for, or a command's code."""
HEAVY = {"ray": {"iter/ray_engine.py"}}
"""Packages that only some modules may import."""
DOORS = {("config.py", "flowrl.trainer")}
"""The one reference to a row below: `config.build()` makes a trainer, and loads it then."""
LIGHT_ROWS = 3
"""Up to this row nothing loads torch or gymnasium."""


def name_of(path):
    return path.relative_to(PACKAGE).as_posix()


def row_of(module):
    """The row of `flowrl.iter.nodes`, or of the file of it."""
    parts = module.split(".")[1:] or ["__init__"]
    assert parts[0] in ROW_OF, f"flowrl.{parts[0]} has no row: give it one here and in docs/how_it_works.md"
    return ROW_OF[parts[0]]


def loads_by_name(node):
    called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    return called == "import_module" and isinstance(node.args[0], ast.Constant)


def imports_of(tree):
    """(module, node) of every import, wherever it stands, and of every module that is loaded by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole module"
            parts = [f"{node.module}.{alias.name}" for alias in node.names if node.module == "flowrl" and alias.name in ROW_OF]
            yield from ((part, node) for part in (parts or [node.module]))
        elif loads_by_name(node):
            yield node.args[0].value, node


def inside_functions(tree):
    return {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
    }


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_from_its_own_row_or_the_rows_above(path):
    own = ROW_OF[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]
    for module, node in imports_of(ast.parse(path.read_text())):
        if module.partition(".")[0] == "flowrl" and (name_of(path), module) not in DOORS:
            assert row_of(module) <= own, f"{name_of(path)}:{node.lineno} is in row {own} and imports {module} of row {row_of(module)}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_are_at_the_top_of_a_module(path):
    """But for optional packages, and for the modules whose job it is to load others when they are first used."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {dependency.partition(">")[0].partition("=")[0].strip() for dependency in project["dependencies"]}
    tree = ast.parse(path.read_text())
    inside = inside_functions(tree)
    for module, node in imports_of(tree):
        top = module.partition(".")[0]
        if id(node) in inside and not (isinstance(node, ast.Call) and name_of(path) in LAZY):
            optional = top not in needed and top not in sys.stdlib_module_names and top != "flowrl"
            assert optional, f"{name_of(path)}:{node.lineno} imports {module} inside a function"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_ray_engine_imports_ray_and_the_core_loads_nothing_heavy(path):
    own = ROW_OF[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]
    for module, node in imports_of(ast.parse(path.read_text())):
        top = module.partition(".")[0]
        assert name_of(path) in HEAVY.get(top, {name_of(path)}), f"{name_of(path)}:{node.lineno} imports {top}"
        if own <= LIGHT_ROWS:
            assert top not in ("torch", "gymnasium"), f"{name_of(path)}:{node.lineno} imports {top}"


def test_the_picture_knows_nothing_of_plans():
    for path in (PACKAGE / "graph").glob("*.py"):
        for module, node in imports_of(ast.parse(path.read_text())):
            if module.startswith("flowrl."):
                assert module.startswith(("flowrl.graph", "flowrl.errors")), f"{path.name}:{node.lineno} imports {module}"


def test_every_package_has_a_row():
    assert {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} <= set(
        ROW_OF
    )


def test_the_checks_above_would_see_a_wrong_import():
    tree = ast.parse("import ray\ndef f():\n    from flowrl.ops import Concurrently\n    import_module('flowrl.cli')")
    found = {module: id(node) in inside_functions(tree) for module, node in imports_of(tree)}
    assert found == {"ray": False, "flowrl.ops": True, "flowrl.cli": True}
    assert [row_of(module) for module in ("flowrl.ops", "flowrl.cli", "flowrl")] == [5, 7, 7]
