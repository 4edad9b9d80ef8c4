"""Handles: names for things that run only while somebody has opened them.

A handle is cheap, can be pickled and is hashed by identity; nothing runs behind it until the user (`with handle.open():`)
or a run opens it. Who opened it closes it. While it is open, calls go to the live thing; closed, it raises
`NotOpenError` with what to do.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from flowrl.errors import NotOpenError, RunError
from flowrl.iter.choose import resolve_engine
from flowrl.metrics.context import ACTIVE

__all__ = ["ActorHandle", "Handle", "RemoteMethod", "create_colocated", "handles_in"]

_HANDLES: weakref.WeakValueDictionary[str, Handle] = weakref.WeakValueDictionary()


def _restore(cls: type[Handle], handle_id: str, state: dict[str, Any]) -> Handle:
    """The handle itself where it was made; in another process one that knows the same live thing, as of now."""
    handle = _HANDLES.get(handle_id)
    if handle is None:
        handle = cls.__new__(cls)
        handle._away = True
        _HANDLES[handle_id] = handle
    if handle._away:
        handle.__dict__.update(state)
    return handle


class Handle:
    """Base of all handles. A subclass says how to start and stop what it stands for."""

    _away = False
    """Whether it was made in another process."""

    is_handle = True
    preferred_engine: str | None = None
    """The engine that the handle's config asks for."""

    def __init__(self) -> None:
        self.handle_id = uuid.uuid4().hex
        self._live: Any = None
        self._engine: Any = None
        self._num_users = 0
        _HANDLES[self.handle_id] = self

    def start_live(self, engine: Any) -> Any:
        """Start what it stands for; called by `retain`."""
        raise AssertionError("every handle has a start_live of its own")

    def stop_live(self, engine: Any, live: Any) -> None:
        """Stop it; called by `release`."""

    def state_elsewhere(self) -> dict[str, Any]:
        """What a copy in another process knows: nothing runs behind it there unless the subclass says so."""
        return {"handle_id": self.handle_id, "_live": None, "_engine": None, "_num_users": 0}

    def join_run(self, run: Any) -> None:
        """A run has opened it: what it has to tell goes into that run's metrics."""

    @property
    def is_open(self) -> bool:
        """Whether something runs behind it."""
        return self._live is not None

    @property
    def live(self) -> Any:
        """The live thing. Inside a run a closed handle is opened now, and closed with the run; else `NotOpenError`."""
        if self._live is None:
            context = ACTIVE.slot[0]
            if context is None or context.run is None:
                raise NotOpenError(
                    f"nothing runs behind {self!r}: use it inside a running plan (`with plan.run() as stream:`), or open it "
                    "yourself (`with workers.open():`, `with queue.open():`); what you opened keeps its contents from plan to plan"
                )
            context.run.open_handle(self)
        return self._live

    @property
    def engine(self) -> Any:
        """The engine that it runs on; `NotOpenError` while it is closed."""
        assert self.live is not None
        return self._engine

    @property
    def num_users(self) -> int:
        """How many runs and blocks have it open."""
        return self._num_users

    def retain(self, engine: Any) -> None:
        """One more user; the first one starts it."""
        if self._live is None:
            live = self.start_live(engine)
            self._live, self._engine = live, engine
        elif self._engine is not engine and self._engine.name != engine.name:
            raise RunError(
                f"{self!r} is open on {self._engine!r} and cannot be used on {engine!r} at the same time: run the plan with "
                f"engine={self._engine.name!r}"
            )
        self._num_users += 1

    def release(self) -> None:
        """One user less; the last one stops it."""
        self._num_users -= 1
        if self._num_users <= 0 and self._live is not None:
            live, engine, self._live, self._engine, self._num_users = self._live, self._engine, None, None, 0
            self.stop_live(engine, live)

    @contextmanager
    def open(self, engine: Any = None) -> Iterator[Self]:
        """Open it for a while: it keeps its weights and contents from plan to plan until the block ends."""
        self.retain(resolve_engine(engine, [self]))
        try:
            yield self
        finally:
            self.release()

    def __reduce__(self) -> Any:
        return _restore, (type(self), self.handle_id, self.state_elsewhere())

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'open' if self._live is not None else 'closed'})"


class RemoteMethod:
    """`handle.method`: `.remote(*args)` calls it on the live actor."""

    __slots__ = ("handle", "method")

    def __init__(self, handle: ActorHandle, method: str) -> None:
        self.handle, self.method = handle, method

    def remote(self, *args: Any) -> Any:
        """The call: on Ray an `ObjectRef`, on the serial engine a finished call for `engine.result`."""
        call = getattr(self.handle.live, self.method).remote(*args)
        self.handle.num_calls += 1
        return call

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.method}() runs in an actor: call {self.method}.remote(...)")


class ActorHandle(Handle):
    """An actor that is started when it is opened: `cls(*args)`. `handle.method.remote(*args)` calls it."""

    num_calls = 0
    """Calls made through it so far: a source that has nothing to give is asked again once there was one more."""
    where = ""
    """How an error calls it, where it is one of several."""

    def __init__(
        self, cls: type, args: Sequence[Any] = (), resources: Mapping[str, Any] | None = None, owner: Handle | None = None
    ) -> None:
        super().__init__()
        self.cls, self.args, self.resources, self.owner = cls, tuple(args), resources, owner

    def start_live(self, engine: Any) -> Any:
        return engine.start(self.cls, *self.args, resources=self.resources)

    def stop_live(self, engine: Any, live: Any) -> None:
        engine.stop(live)

    def state_elsewhere(self) -> dict[str, Any]:
        return {
            **super().state_elsewhere(),
            "_live": self._live,
            "cls": self.cls,
            "args": (),
            "resources": None,
            "owner": None,
            "where": self.where,
        }

    def __getattr__(self, name: str) -> RemoteMethod:
        if name.startswith("_") or "cls" not in self.__dict__:
            raise AttributeError(name)
        if not callable(getattr(self.cls, name, None)):
            raise AttributeError(f"{self.cls.__name__} has no method {name!r}")
        return RemoteMethod(self, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cls.__name__}, {'open' if self._live is not None else 'closed'})"


def create_colocated(cls: type, args: Sequence[Any], count: int) -> list[ActorHandle]:
    """Handles of `count` actors `cls(*args)` in the driver's node; nothing is started.

    >>> create_colocated(dict, [], 2)
    [ActorHandle(dict, closed), ActorHandle(dict, closed)]

    A class with a method `args_of_shard(args, index)` says itself what actor 0, 1, ... is made with: a seed of its own, say.
    """
    if count < 1:
        raise ValueError(f"create_colocated got count={count}: ask for at least one actor")
    own = getattr(cls, "args_of_shard", lambda args, index: args)
    handles = [ActorHandle(cls, own(args, index), resources={"near_driver": True}) for index in range(count)]
    for index, handle in enumerate(handles):
        handle.where = f", shard {index} of {count}"
    return handles


def handles_in(thing: Any) -> list[Handle]:
    """The handles that an operator holds: it itself, its fields, and lists of them; an actor's owner in place of the actor.

    >>> handles_in(print)
    []
    """
    if isinstance(thing, Handle):
        owner = getattr(thing, "owner", None)
        return [owner if isinstance(owner, Handle) else thing]
    found: list[Handle] = []
    parts = thing if isinstance(thing, list | tuple) else getattr(thing, "__dict__", {}).values()
    for part in parts:
        if isinstance(part, Handle) or (isinstance(part, list | tuple) and part and isinstance(part[0], Handle)):
            found.extend(handles_in(part))
    return list(dict.fromkeys(found))
