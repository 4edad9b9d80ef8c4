"""Things of a user's code by name, as a settings file or a command line writes them: "module:name" or "path/to/file.py:name".

Finding one imports its module, which runs it: only name files that are yours.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from flowrl.errors import ConfigError
from flowrl.iter.modules import is_the_users

__all__ = ["find", "is_reference", "load_module", "nearest", "reference_to"]

_LOADED: dict[Path, ModuleType] = {}
"""Files that were loaded by their path: each once, so that a class is the same class each time."""


def find(text: str) -> Any:
    """What "module:name" or "file.py:name" names.

    >>> find("collections:OrderedDict")
    <class 'collections.OrderedDict'>
    >>> find("collections:OrderdDict")
    Traceback (most recent call last):
    flowrl.errors.ConfigError: collections has no 'OrderdDict'. Did you mean 'OrderedDict'?
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise ConfigError(f"{text!r} names nothing: write module:name or path/to/file.py:name")
    module = load_module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{place} has no {name!r}. {nearest(part, [known for known in vars(found) if not known.startswith('_')])}")
        found = getattr(found, part)
    return found


def load_module(place: str) -> ModuleType:
    """The module of this name, or of this file; its errors are the user's own."""
    if place.endswith(".py"):
        return _load_file(Path(place))
    if not all(part.isidentifier() for part in place.split(".")):
        raise ConfigError(f"{place!r} is no module: name one, or path/to/file.py")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(error.name + ".")):
            raise ConfigError(f"there is no module {place!r}: name one that can be imported from here, or path/to/file.py") from None
        raise


def reference_to(thing: Any) -> str:
    """The text by which `find` finds a class or function.

    "module:name"; for the running script, a file that was loaded by its path, and what lies beside that, "file.py:name", from
    the current folder on if it is below.
    """
    module = sys.modules.get(thing.__module__)
    file = getattr(module, "__file__", None)
    if module is not None and file is not None and (module.__name__ == "__main__" or _was_loaded(module)):
        return f"{_from_here(Path(file).resolve())}:{thing.__qualname__}"
    return f"{thing.__module__}:{thing.__qualname__}"


def is_reference(text: str) -> bool:
    """Whether this may be "module:name" or "file.py:name"."""
    place, _, name = text.rpartition(":")
    return bool(place) and all(part.isidentifier() for part in name.split("."))


def nearest(name: str, known: list[str]) -> str:
    """A hint: the nearest of the known names, or all of them."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There is: {', '.join(known)}."


def _load_file(given: Path) -> ModuleType:
    path = given.resolve()
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == path:
        return main  # the running script is not run a second time
    if path in _LOADED:
        return _LOADED[path]
    if not path.is_file():
        beside = sorted(str(given.with_name(other.name)) for other in path.parent.glob("*.py"))
        hint = nearest(str(given), beside) if beside else f"It was looked for in {Path.cwd()}."
        raise ConfigError(f"there is no file {given}. {hint}")
    spec = importlib.util.spec_from_file_location(f"flowrl_file_{path.stem}_{len(_LOADED)}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As for `python file.py`: modules beside the file can be imported. Other processes get what is in it by value.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    sys.modules[spec.name] = module
    before = set(sys.modules)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    _refuse_strangers(module, path)
    for sibling in [sys.modules[name] for name in sys.modules.keys() - before if _is_below(sys.modules[name], path.parent)]:
        cloudpickle.register_pickle_by_value(sibling)
    cloudpickle.register_pickle_by_value(module)
    _LOADED[path] = module
    return module


def _refuse_strangers(module: ModuleType, path: Path) -> None:
    """A file that has `helpers.py` beside it must not get the helpers of another folder, which were loaded before."""
    for thing in vars(module).values():
        name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
        found = sys.modules.get(name) if isinstance(name, str) else None
        beside = path.parent / f"{name}.py"
        file = getattr(found, "__file__", None)
        if file is not None and beside != path and beside.is_file() and Path(file).resolve() != beside:
            del sys.modules[module.__name__]
            raise ConfigError(f"{path.name} imports {name!r}, which is {file} already, and not {beside}: give one of the two another name")


def _is_below(module: ModuleType, folder: Path) -> bool:
    return is_the_users(module) and Path(str(module.__file__)).resolve().is_relative_to(folder)


def _was_loaded(module: ModuleType) -> bool:
    """Whether it was loaded by its path, or lies beside a file that was; a module of a package has a name of its own."""
    if module in _LOADED.values():
        return True
    return (
        "." not in module.__name__ and is_the_users(module) and Path(str(module.__file__)).resolve().parent in {p.parent for p in _LOADED}
    )


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
