"""What runs actors: the few primitives that a run needs of an engine, and the serial engine, which needs no process.

An engine starts actors, calls them and waits; it knows nothing of plans. `SerialEngine` does it in the thread that
waits, choosing by its seed among the calls that could go next, so that every asynchronous plan can be repeated bit for
bit. The engine for processes and machines is in `ray_engine`.
"""

from __future__ import annotations

import pickle
import random
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import cloudpickle

from flowrl.errors import ActorDiedError, RunError
from flowrl.iter.freeze import freeze
from flowrl.metrics.context import MetricsContext

__all__ = ["Draw", "Engine", "SerialActor", "SerialCall", "SerialEngine", "Tasks", "live_actor"]


class Tasks(Protocol):
    """Calls of one function outside the caller's thread, for `for_each(max_concurrency=)`. Picklable until first used."""

    def submit(self, item: Any) -> Any:
        """Start the function on `item`; the call."""

    def result(self, call: Any, context: MetricsContext) -> Any:
        """Wait for the call: its value, or raises what the function raised; what it counted goes into `context`."""


class Engine(Protocol):
    """What a run asks of an engine. Actors and calls are the engine's own objects; both are hashable."""

    name: str
    clock: str
    """"real", or "count" where time is counted in items (C12)."""

    def start(self, cls: type, *args: Any, resources: Mapping[str, Any] | None = None) -> Any:
        """An actor: an instance of `cls` that answers one call after the other."""

    def stop(self, actor: Any) -> None:
        """End an actor; its open calls fail."""

    def call(self, actor: Any, method: str, *args: Any) -> Any:
        """Ask an actor for `method(*args)`; the call. An actor answers in the order of the calls."""

    def asker(self, actor: Any, method: str) -> Callable[[], Any]:
        """A function that makes the call `method()`: the cheapest one there is."""

    def result(self, call: Any, notice: Any = None) -> Any:
        """Wait for a call and return its value; raises what the method raised. `notice` is what `notify` gave for it, if it was asked."""

    def results(self, calls: Sequence[Any]) -> list[Any]:
        """Wait for several calls and return their values; raises what one of them raised."""

    def wait(self, calls: Sequence[Any], timeout_s: float | None = None, num: int = 1) -> tuple[list[Any], list[Any]]:
        """Wait until `num` of the calls are done or the time is over; the done ones and the others."""

    def forget(self, calls: Sequence[Any]) -> None:
        """Nobody waits for these calls any more: one that has not begun need not."""

    def notify(self, call: Any, wake: Callable[[], None]) -> Any:
        """Have `wake` called, from any thread, once the call is done; a notice whose `done()` says whether it is."""

    def named_by(self, call: Any, value: Any) -> Any:
        """What to pass to an actor in place of `value`, which is that of `call`, so that it need not be packed again."""

    def peek(self, asks: Sequence[tuple[Any, str, tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        """Ask (actor, method, args) for what changes nothing; None for those that have not answered in time."""

    def share(self, value: Any) -> Any:
        """A value to pass to many calls at the price of one."""

    def dumps(self, value: Any) -> bytes:
        """Pickle for an actor."""

    def loads(self, packed: bytes) -> Any:
        """Undo `dumps`, on either side."""

    def ship_by_value(self, module: Any) -> bool:
        """From now on pickle what `module` defines by value; False where that was so before."""

    def tasks(self, fn: Callable[[Any], Any], resources: Mapping[str, Any]) -> Tasks:
        """A function to be run outside the actor that uses it."""

    def owns(self, actor: Any) -> bool:
        """Whether `actor` is one of this engine's."""

    def prepare(self, demands: Sequence[Mapping[str, Any]]) -> None:
        """Make sure that the engine is up and holds actors and tasks with these resources; `ClusterError` else."""


def live_actor(actor: Any) -> Any:
    """The actor itself, or the one behind a handle."""
    return actor.live if getattr(type(actor), "is_handle", False) else actor


class Draw:
    """The serial engine's choice among the actors that wait: seeded, and everyone once before anyone twice."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.served: set[SerialActor] = set()

    def pick(self, calls: Sequence[SerialCall]) -> SerialCall:
        """The call to run next."""
        first: dict[SerialActor, SerialCall] = {}
        for call in calls:
            first.setdefault(call.actor, call)
        waiting = [actor for actor in first if actor not in self.served]
        if not waiting:
            self.served.clear()
            waiting = list(first)
        actor = waiting[self.random.randrange(len(waiting))] if len(waiting) > 1 else waiting[0]
        self.served.add(actor)
        return first[actor]


class SerialCall:
    """A call of the serial engine: run when somebody waits for it, or when a later call of its actor is."""

    __slots__ = ("__weakref__", "actor", "args", "done", "error", "method", "value")

    def __init__(self, actor: SerialActor, method: str, args: tuple[Any, ...]) -> None:
        self.actor, self.method, self.args = actor, method, args
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run it now; `SerialActor.drain` sees to the order."""
        try:
            if self.actor.instance is None:
                raise ActorDiedError(f"{self.actor!r} was stopped, and {self.method}() was asked of it afterwards: start a new actor")
            self.value = freeze(getattr(self.actor.instance, self.method)(*self.args))
        except KeyboardInterrupt:
            self.error = RunError(f"{self.method}() of {self.actor!r} was interrupted: what it was making is lost")
            raise
        except BaseException as error:
            self.error = error
        finally:
            self.done = True
            self.args = ()


class SerialMethod:
    """`actor.method`: `.remote(*args)` makes the call at once."""

    __slots__ = ("actor", "method")

    def __init__(self, actor: SerialActor, method: str) -> None:
        self.actor, self.method = actor, method

    def remote(self, *args: Any) -> SerialCall:
        """The finished call; `engine.result` has its value, or raises."""
        call = self.actor.queue_call(self.method, args)
        self.actor.drain(call)
        return call


_ACTORS: weakref.WeakValueDictionary[str, SerialActor] = weakref.WeakValueDictionary()


def _actor_by_id(actor_id: str) -> SerialActor:
    try:
        return _ACTORS[actor_id]
    except KeyError:
        raise RunError(
            "an actor of the serial engine lives in one process only: use the Ray engine to pass actors to another one"
        ) from None


class SerialActor:
    """An actor of the serial engine: an instance, and the calls that it has not answered yet."""

    def __init__(self, cls: type, args: tuple[Any, ...]) -> None:
        self.actor_id = uuid.uuid4().hex
        self.cls = cls
        self.calls: deque[SerialCall] = deque()
        self.instance: Any = cls(*(freeze(arg) for arg in args))
        _ACTORS[self.actor_id] = self

    def queue_call(self, method: str, args: tuple[Any, ...]) -> SerialCall:
        """A call that waits for its turn."""
        if not hasattr(self.cls, method):
            raise AttributeError(f"{self.cls.__name__} has no method {method!r}")
        call = SerialCall(self, method, tuple(freeze(arg) for arg in args))
        self.calls.append(call)
        return call

    def drain(self, until: SerialCall) -> None:
        """Answer calls in their order, up to and with `until`."""
        while not until.done:
            self.calls.popleft().run()

    def __getattr__(self, method: str) -> SerialMethod:
        if method.startswith("__") or not callable(getattr(self.cls, method, None)):
            raise AttributeError(f"{self.cls.__name__} has no method {method!r}")
        return SerialMethod(self, method)

    def __reduce__(self) -> Any:
        return _actor_by_id, (self.actor_id,)

    def __repr__(self) -> str:
        return f"SerialActor({self.cls.__name__})"


class _SerialTasks:
    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    def submit(self, item: Any) -> Any:
        return freeze(item)

    def result(self, call: Any, context: MetricsContext) -> Any:
        return freeze(self.fn(call))


class SerialEngine:
    """All actors in one process and one thread; the same seed gives the same order, whatever the plan.

    `engine.start(cls, *args)` an actor, `engine.call(actor, "method", *args)` a call, `engine.result(call)` its value:

    >>> engine = SerialEngine(seed=0)
    >>> counter = engine.start(dict)
    >>> engine.result(engine.call(counter, "get", "x", 7))
    7
    """

    name = "serial"
    clock = "count"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._draw = Draw(seed)

    def start(self, cls: type, *args: Any, resources: Mapping[str, Any] | None = None) -> SerialActor:
        """An actor, made at once; `resources` means nothing in one process."""
        return SerialActor(cls, args)

    def stop(self, actor: SerialActor) -> None:
        """Let go of the instance; calls that it has not answered fail."""
        actor.instance = None
        if actor.calls:
            actor.drain(actor.calls[-1])

    def call(self, actor: SerialActor, method: str, *args: Any) -> SerialCall:
        """A call, of an actor or the one behind a handle, that is run when it is waited for."""
        called: SerialCall = live_actor(actor).queue_call(method, args)
        return called

    def asker(self, actor: SerialActor, method: str) -> Callable[[], SerialCall]:
        """A function that makes the call `method()`."""
        return lambda: actor.queue_call(method, ())

    def result(self, call: SerialCall, notice: Any = None) -> Any:
        """The call's value, run now if it was not yet, after the calls before it."""
        call.actor.drain(call)
        if call.error is not None:
            raise call.error
        return call.value

    def results(self, calls: Sequence[SerialCall]) -> list[Any]:
        """The calls' values."""
        return [self.result(call) for call in calls]

    def wait(
        self, calls: Sequence[SerialCall], timeout_s: float | None = None, num: int = 1, draw: Draw | None = None
    ) -> tuple[list[SerialCall], list[SerialCall]]:
        """Run calls, in the order that `draw` (else the engine's own) chooses, until `num` of them are done."""
        waiting = [call for call in calls if not call.done]
        while len(calls) - len(waiting) < num and waiting:
            call = (draw or self._draw).pick(waiting)
            call.actor.drain(call)
            waiting = [call for call in waiting if not call.done]
        return [call for call in calls if call.done], waiting

    def forget(self, calls: Sequence[SerialCall]) -> None:
        """Take those that have not begun off their actors' lists."""
        for call in calls:
            if not call.done and call in call.actor.calls:
                call.actor.calls.remove(call)

    def notify(self, call: SerialCall, wake: Callable[[], None]) -> Future[None]:
        """Run the call now: nobody else would."""
        call.actor.drain(call)
        wake()
        notice: Future[None] = Future()
        notice.set_result(None)
        return notice

    def named_by(self, call: SerialCall, value: Any) -> Any:
        """The value: it is frozen, and passes as it is."""
        return value

    def peek(self, asks: Sequence[tuple[SerialActor, str, tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        """Look past the calls that wait, which stay in their order."""
        return [getattr(actor.instance, method)(*args) if actor.instance is not None else None for actor, method, args in asks]

    def share(self, value: Any) -> Any:
        """A read-only copy."""
        return freeze(value)

    def dumps(self, value: Any) -> bytes:
        """By cloudpickle: functions that no module has travel by value."""
        return bytes(cloudpickle.dumps(value))

    def loads(self, packed: bytes) -> Any:
        """Undo `dumps`."""
        return pickle.loads(packed)

    def ship_by_value(self, module: Any) -> bool:
        """Nothing to do: in one process every module is there."""
        return False

    def tasks(self, fn: Callable[[Any], Any], resources: Mapping[str, Any]) -> Tasks:
        """The function, run when its result is asked for."""
        return _SerialTasks(fn)

    def owns(self, actor: Any) -> bool:
        """Whether it is an actor of a serial engine."""
        return isinstance(actor, SerialActor)

    def prepare(self, demands: Sequence[Mapping[str, Any]]) -> None:
        """Nothing to prepare."""

    def __repr__(self) -> str:
        return f"SerialEngine(seed={self.seed})"
