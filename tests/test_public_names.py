"""`__all__` of each public package is complete and can be imported; and `flowrl.iter` alone stays light."""

from __future__ import annotations

import ast
import importlib
import types
from pathlib import Path

import pytest

import flowrl

PUBLIC = ["flowrl", "flowrl.iter", "flowrl.ops", "flowrl.graph", "flowrl.metrics", "flowrl.errors"]
PACKAGE = Path(flowrl.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name):
    module = importlib.import_module(name)
    assert module.__all__ == list(dict.fromkeys(module.__all__)), "no name twice"
    for public in module.__all__:
        assert getattr(module, public) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_names_of_all_are_sorted(name):
    module = importlib.import_module(name)
    assert module.__all__ == sorted(module.__all__, key=lambda text: (not text.isupper(), not text[0].isupper(), text))


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_complete(name):
    """What the package itself defines or takes from its own modules, less what begins with an underscore."""
    module = importlib.import_module(name)
    tree = ast.parse(Path(module.__file__).read_text())
    named = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "flowrl"
        for alias in node.names
    }
    named |= {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    public = {name for name in named if not name.startswith("_")}
    assert public <= set(module.__all__)


@pytest.mark.parametrize("name", ["flowrl", "flowrl.ops", "flowrl.graph"])
def test_names_that_are_loaded_when_first_used_are_those_of_all(name):
    module = importlib.import_module(name)
    assert set(module._MODULE_OF) <= set(module.__all__)
    for public in module._MODULE_OF:
        assert getattr(module, public) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_module_says_what_is_public(path):
    name = ".".join(("flowrl", *path.relative_to(PACKAGE).with_suffix("").parts))
    module = importlib.import_module(name)
    assert module.__all__ and all(hasattr(module, public) for public in module.__all__)
    assert module.__doc__


def test_all_errors_are_of_one_tree_and_the_docstring_draws_it():
    from flowrl import errors

    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.FlowError)
        assert name in errors.__doc__


def test_what_section_2_promises_of_the_iterators_is_there():
    from flowrl.iter import LocalIterator, ParallelIterator

    parallel = (
        "transform for_each filter batch flatten combine local_shuffle repartition union select_shards shards get_shard num_shards "
        "gather_sync batch_across_shards gather_async take show check draw graph explain"
    )
    local = (
        "for_each filter batch flatten combine transform shuffle zip_with_source_actor zip_with_source_actors duplicate union take show "
        "get_metrics check draw graph explain run close"
    )
    assert [name for name in parallel.split() if not callable(getattr(ParallelIterator, name, None))] == []
    assert [name for name in local.split() if not callable(getattr(LocalIterator, name, None))] == []


def test_flowrl_iter_alone_loads_neither_torch_nor_gymnasium_nor_ray(python):
    out = python(
        """
        import sys
        import flowrl.iter
        from flowrl.iter import from_range
        from flowrl.ops import Concurrently, Dequeue, Enqueue
        plan = Concurrently([from_range(4).for_each(abs).gather_async(), from_range(3).gather_sync()])
        plan.check()
        assert sorted(plan) == [0, 0, 1, 1, 2, 2, 3]
        print([name for name in ("torch", "gymnasium", "ray", "numpy", "networkx", "matplotlib") if name in sys.modules])
        """
    )
    loaded = ast.literal_eval(out.splitlines()[-1])
    assert set(loaded) <= {"numpy"}


def test_a_misspelt_name_gets_the_nearest(python):
    out = python(
        """
        import subprocess, sys
        for code in ("import flowrl as fl; fl.PPOCofig", "import flowrl.ops as ops; ops.TrainOneStp"):
            print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.splitlines()[-1])
        """
    )
    assert "Did you mean: 'PPOConfig'?" in out and "Did you mean: 'TrainOneStep'?" in out


def test_dir_shows_the_public_names():
    for name in ("flowrl", "flowrl.ops"):
        module = importlib.import_module(name)
        assert set(module.__all__) <= set(dir(module))
        assert isinstance(module, types.ModuleType)
