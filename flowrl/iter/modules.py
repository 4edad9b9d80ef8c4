"""Whose a module is: what a user wrote may have to travel by value, what is installed never does."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

__all__ = ["is_the_users"]


def is_the_users(module: ModuleType) -> bool:
    """Whether a module is neither Python's, nor flowrl's, nor installed.

    >>> is_the_users(sys.modules["pathlib"]), is_the_users(sys.modules["flowrl"])
    (False, False)
    """
    file = getattr(module, "__file__", None)
    of_others = module.__name__.partition(".")[0] in (*sys.stdlib_module_names, "flowrl", "__main__", "ray")
    return file is not None and not of_others and not {"site-packages", "dist-packages"} & set(Path(file).parts)
