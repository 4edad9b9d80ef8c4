"""Which engine runs a plan: asked for by name or object, by a `with engine(...)` block, by a handle's config, else serial."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from flowrl.errors import PlanError
from flowrl.iter.engine import Engine, SerialEngine
from flowrl.iter.naming import short
from flowrl.metrics.context import ACTIVE

__all__ = ["current_engine", "engine", "engine_by_name", "resolve_engine"]

_BLOCK: ContextVar[tuple[_BlockEngine, ...]] = ContextVar("flowrl_engines", default=())
_RAY: list[Engine] = []
_SERIAL: list[Engine] = []


def engine_by_name(name: str) -> Engine:
    """The engine that a name stands for: a fresh serial one, or the one Ray engine of this process."""
    if name == "serial":
        return SerialEngine()
    if name == "ray":
        if not _RAY:
            _RAY.append(importlib.import_module("flowrl.iter.ray_engine").RayEngine())
        return _RAY[0]
    raise PlanError(f"engine={name!r} is not known: use 'serial', 'ray', or an engine object such as fl.SerialEngine(seed=1)")


def _as_engine(wanted: Any) -> Engine:
    if isinstance(wanted, str):
        return engine_by_name(wanted)
    if isinstance(wanted, _BlockEngine):
        return wanted.inner
    if isinstance(wanted, type) or not all(callable(getattr(wanted, name, None)) for name in ("start", "call", "wait", "result")):
        raise PlanError(
            f"engine={short(wanted)} is not an engine: use 'serial', 'ray', or an engine object such as fl.SerialEngine(seed=1)"
        )
    return wanted  # type: ignore[no-any-return]


def resolve_engine(wanted: Any, named: Sequence[Any]) -> Engine:
    """The engine of a run: `wanted`, else the innermost block, else what the handles and actors in `named` ask for, else serial."""
    if wanted is not None:
        return _as_engine(wanted)
    if _BLOCK.get():
        return _BLOCK.get()[-1].inner
    for thing in named:
        running_on = getattr(thing, "_engine", None)
        if running_on is not None:
            return running_on  # type: ignore[no-any-return]
    for thing in named:
        preferred = getattr(thing, "preferred_engine", None)
        if isinstance(preferred, str):
            return engine_by_name(preferred)
        if type(thing).__module__.partition(".")[0] == "ray":
            return engine_by_name("ray")
    return SerialEngine()


def current_engine() -> Engine:
    """The engine of the run at work, else of the innermost `with engine(...)` block, else one serial engine of this process."""
    context = ACTIVE.slot[0]
    if context is not None and context.run is not None:
        running: Engine = context.run.engine
        return running
    if _BLOCK.get():
        return _BLOCK.get()[-1]
    if not _SERIAL:
        _SERIAL.append(SerialEngine())
    return _SERIAL[0]


class engine:
    """`with engine("ray") as ray_engine:` every run in the block that does not say otherwise uses it.

    >>> with engine("serial") as serial:
    ...     counter = serial.start(dict)
    ...     serial.result(serial.call(counter, "get", "x", 7))
    7

    Actors that the block's engine starts live until the block ends. It is a class on purpose: without `with` it changes
    nothing, and says so.
    """

    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted
        self._engine = _as_engine(wanted)
        self._entered = False
        self._token: Token[tuple[_BlockEngine, ...]] | None = None

    def __enter__(self) -> Engine:
        self._entered = True
        block = _BlockEngine(self._engine)
        self._block = block
        self._token = _BLOCK.set((*_BLOCK.get(), block))
        return block

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._token is not None
        _BLOCK.reset(self._token)
        self._block.stop_all()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"engine({self._wanted!r}).{name}: engine(...) is a block, write `with engine({self._wanted!r}) as e:` and use e.{name}"
        )

    def __repr__(self) -> str:
        return f"engine({self._wanted!r}) (has no effect without `with`)"

    def __del__(self) -> None:
        if not getattr(self, "_entered", True):
            warnings.warn(f"engine({self._wanted!r}) was made and dropped without `with`: it changed nothing", stacklevel=2)


class _BlockEngine:
    """An engine that remembers which actors it started, to stop them when its block ends."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self._started: list[Any] = []

    def start(self, cls: type, *args: Any, resources: Any = None) -> Any:
        """An actor that lives until the block ends."""
        actor = self.inner.start(cls, *args, resources=resources)
        self._started.append(actor)
        return actor

    def stop(self, actor: Any) -> None:
        """End an actor before its block does."""
        if actor in self._started:
            self._started.remove(actor)
        self.inner.stop(actor)

    def stop_all(self) -> None:
        """End all that are left."""
        while self._started:
            self.inner.stop(self._started.pop())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __reduce__(self) -> Any:
        raise TypeError("the engine of a `with engine(...)` block cannot travel: pass its actors, or name the engine there")

    def __repr__(self) -> str:
        return repr(self.inner)
