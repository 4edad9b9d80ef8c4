"""Which algorithms there are, and what a command line or a settings file means by one: a plan function beside a config class.

An algorithm is a module with an `execution_plan(workers, config)` and exactly one config class of its own: a file of
`flowrl.algorithms`, or a user's. Adding one to `flowrl.algorithms` is enough for it to be known here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import flowrl.algorithms
from flowrl.config import AlgorithmConfig
from flowrl.errors import ConfigError
from flowrl.references import find, load_module, nearest

__all__ = ["Algorithm", "find_algorithm", "known_algorithms", "only_config_class", "plan_of"]

PLAN = "execution_plan"
PREBUILT = "flowrl.algorithms"


@dataclass(frozen=True)
class Algorithm:
    """A plan function, by the name it was asked for: "ppo", or "my.py:execution_plan"."""

    name: str
    plan: Callable[[Any, Any], Any]
    module: ModuleType

    @property
    def is_prebuilt(self) -> bool:
        """Whether it is one of flowrl's own."""
        return self.module.__name__.startswith(f"{PREBUILT}.")

    @property
    def short_name(self) -> str:
        """What a run's folder is called after: "ppo", or "my" of "my.py:execution_plan"."""
        return self.name if self.is_prebuilt else Path(self.name.rpartition(":")[0]).name.removesuffix(".py")

    def config_class(self) -> type[AlgorithmConfig]:
        """The config class of its module."""
        return only_config_class(self.module, self.name.rpartition(":")[0])


def known_algorithms() -> dict[str, str]:
    """The names of flowrl's own algorithms, each with the first line of its docstring; none of them is imported for it.

    >>> known_algorithms()["ppo"]
    'PPO: several epochs of minibatches over each batch, held near the policy that sampled it by a clipped ratio.'
    """
    known = {}
    for path in sorted(Path(flowrl.algorithms.__path__[0]).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == PLAN for node in tree.body):
            known[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return known


def find_algorithm(text: str) -> Algorithm:
    """The algorithm called "ppo", or "path/to/file.py:plan", or "module:plan"; a file alone stands for its `execution_plan`."""
    known = known_algorithms()
    if text in known:
        module = load_module(f"{PREBUILT}.{text}")
        return Algorithm(text, getattr(module, PLAN), module)
    if text.endswith(".py"):
        text = f"{text}:{PLAN}"
    place, _, _ = text.rpartition(":")
    if not place:
        raise ConfigError(
            f"there is no algorithm {text!r}. {nearest(text.lower(), list(known))} A plan of your own is named file.py:{PLAN}."
        )
    module, plan = load_module(place), find(text)
    if isinstance(plan, type) and issubclass(plan, AlgorithmConfig):
        raise ConfigError(f"{text} is a config class: name the plan, {place}:{PLAN} say, and add --config {text}")
    if not callable(plan):
        raise ConfigError(f"{text} is {type(plan).__name__}: expected a function that makes a plan, {PLAN}(workers, config)")
    return Algorithm(text, plan, module)


def only_config_class(module: ModuleType, place: str) -> type[AlgorithmConfig]:
    """The only config class that a module defines; where it defines none, the only one that it imports."""
    classes = {thing for thing in vars(module).values() if isinstance(thing, type) and issubclass(thing, AlgorithmConfig)}
    own = {thing for thing in classes if thing.__module__ == module.__name__}
    found = sorted(thing.__name__ for thing in own or classes - {AlgorithmConfig})
    if len(found) == 1:
        only: type[AlgorithmConfig] = getattr(module, found[0])
        return only
    if found:
        raise ConfigError(f"{place} has {len(found)} config classes ({', '.join(found)}): name one, --config {place}:{found[0]} say")
    raise ConfigError(
        f"{place} has no config class: define one (a subclass of AlgorithmConfig), or name one, --config flowrl:PPOConfig say"
    )


def plan_of(config_class: type[AlgorithmConfig], place: str) -> str | None:
    """The algorithm that a config of the module `place` is for: the plan beside it, else that of flowrl's own class below it."""
    if callable(getattr(load_module(place), PLAN, None)):
        return f"{place}:{PLAN}"
    return next((base.__module__.rpartition(".")[2] for base in config_class.__mro__ if base.__module__.startswith(f"{PREBUILT}.")), None)
