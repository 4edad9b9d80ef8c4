"""The engine for processes and machines: Ray actors. The only module that imports ray."""

from __future__ import annotations

import importlib.util
import os
import pickletools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

# Actors here take no accelerator unless they ask: Ray is to leave CUDA_VISIBLE_DEVICES alone, as it will by default.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import cloudpickle as plain_cloudpickle
import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from flowrl.errors import ActorDiedError, ClusterError
from flowrl.iter.engine import Tasks, live_actor
from flowrl.iter.failures import Failure
from flowrl.iter.freeze import lock
from flowrl.iter.modules import is_the_users
from flowrl.metrics.context import MetricsContext, active

__all__ = ["RayEngine"]

FIT_S = 10.0
POLL_S = 0.1
DIE_S = 1.0


class RayActorDiedError(ActorDiedError, RayActorError):  # type: ignore[misc]
    """A Ray actor's process is gone."""

    def __init__(self, message: str) -> None:
        RayActorError.__init__(self)
        self.args = (message,)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Any:
        return RayActorDiedError, (self.message,), {"dead_actor": self.dead_actor}


class CarriedFailure(Exception):
    """An error that Ray could not bring to the driver by itself, since its constructor wants other arguments than it keeps."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


class RayEngine:
    """Actors as Ray actors, on this machine or a cluster.

    A run uses a Ray that is up and leaves it up; if none is up, a local one is started (or `address` joined), kept for
    later runs, and shut down when the process ends. Actors take no CPU of Ray's accounting unless `resources` says so.
    """

    name = "ray"
    clock = "real"

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        self._actor_classes: dict[type, Any] = {}
        self._importable: set[str] = set()
        """Modules of users that workers can import."""

    # --- being up -------------------------------------------------------------------------------------------------

    def prepare(self, demands: Sequence[Mapping[str, Any]]) -> None:
        """Have Ray up; `ClusterError` within 10 s where the cluster cannot hold actors and tasks with these resources."""
        wanted = _sum_of(demands)
        self._ensure(num_cpus=wanted.get("CPU", 0))
        total = ray.cluster_resources()
        if any(total.get(name, 0) < amount for name, amount in wanted.items()):
            raise ClusterError(
                f"the plan asks for {_shown(wanted)}, the cluster has {_shown(total, wanted)}: ask for less, or use a larger cluster"
            )
        actors = _sum_of([demand for demand in demands if not demand.get("task")])
        until = time.monotonic() + FIT_S - 1
        while any(ray.available_resources().get(name, 0) < amount for name, amount in actors.items()):
            if time.monotonic() > until:
                free = ray.available_resources()
                raise ClusterError(
                    f"the plan's actors ask for {_shown(actors)}, and only {_shown(free, actors)} is free in the cluster: end what "
                    "holds the rest, "
                    "ask for less, or use a larger cluster"
                )
            time.sleep(POLL_S)

    def _ensure(self, num_cpus: float = 0) -> None:
        if ray.is_initialized():
            return
        if self.address is not None:
            ray.init(address=self.address, logging_level="error")
            return
        ray.init(num_cpus=max(os.cpu_count() or 1, int(num_cpus + 0.999)), include_dashboard=False, logging_level="error")

    # --- actors and calls -----------------------------------------------------------------------------------------

    def start(self, cls: type, *args: Any, resources: Mapping[str, Any] | None = None) -> Any:
        """An actor in a process of its own. `resources` as for `ray.remote`: num_cpus, num_gpus, memory, resources."""
        self._ensure(num_cpus=float((resources or {}).get("num_cpus", 0)))
        self._send_registered_modules()
        self._send_modules_of((cls, args))
        if cls not in self._actor_classes:
            self._actor_classes[cls] = ray.remote(_guarded(cls))
        return self._actor_classes[cls].options(**_options(resources or {})).remote(*args)

    def stop(self, actor: Any) -> None:
        """End the actor's process. It takes some milliseconds to die, and is dead when this returns."""
        if not ray.is_initialized():
            return
        ray.kill(actor)
        until = time.monotonic() + DIE_S
        try:
            while time.monotonic() < until:
                ray.get(actor.__ray_ready__.remote(), timeout=DIE_S)
        except (RayActorError, GetTimeoutError):
            return

    def call(self, actor: Any, method: str, *args: Any) -> Any:
        """`method(*args)` of the actor, or of the one behind a handle, as an `ObjectRef`."""
        return getattr(live_actor(actor), method).remote(*args)

    def asker(self, actor: Any, method: str) -> Callable[[], Any]:
        """The bound call itself: without arguments it is the cheapest one."""
        return getattr(actor, method).remote  # type: ignore[no-any-return]

    def result(self, call: Any, notice: Future[Any] | None = None) -> Any:
        """The call's value, from the notice if that has it; raises what the method raised, with its own type."""
        try:
            if notice is not None and notice.done() and notice.exception() is None:
                value = notice.result()
            else:
                value = ray.get(call)
            lock(value)
            return value
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, CarriedFailure):
                raise cause.failure.error(cloudpickle.loads) from None
            raise cause from error
        except RayActorError as error:
            raise RayActorDiedError(f"the actor's process is gone: {error}") from error

    def results(self, calls: Sequence[Any]) -> list[Any]:
        """All values by one `ray.get`; an error comes as Ray has it: ask for each `result` then."""
        values = ray.get(list(calls))
        for value in values:
            lock(value)
        return values  # type: ignore[no-any-return]

    def wait(self, calls: Sequence[Any], timeout_s: float | None = None, num: int = 1) -> tuple[list[Any], list[Any]]:
        """`ray.wait`: the done calls, oldest first, and the others."""
        done, others = ray.wait(calls if isinstance(calls, list) else list(calls), num_returns=num, timeout=timeout_s)
        return done, others

    def forget(self, calls: Sequence[Any]) -> None:
        """Nothing to do: what an actor was asked for it makes, and nobody gets it."""

    def notify(self, call: Any, wake: Callable[[], None]) -> Future[Any]:
        """Wake from Ray's own thread when the call is done. Ray unpickles its value for that, and the notice keeps it."""
        notice: Future[Any] = call.future()
        notice.add_done_callback(lambda done: wake())
        return notice

    def named_by(self, call: Any, value: Any) -> Any:
        """The `ObjectRef`: the bytes go on as they are."""
        return call

    def peek(self, asks: Sequence[tuple[Any, str, tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        """Ask all at once; None for those that are busy or gone."""
        calls = [self.call(actor, method, *args) for actor, method, args in asks]
        if not calls:
            return []
        done = set(self.wait(calls, timeout_s, len(calls))[0])
        return [self._value_or_none(call) if call in done else None for call in calls]

    def _value_or_none(self, call: Any) -> Any:
        try:
            return self.result(call)
        except ActorDiedError:
            return None

    def share(self, value: Any) -> Any:
        """Put it into the object store once: pass the `ObjectRef` to as many calls as needed."""
        self._ensure()
        return ray.put(value)

    def owns(self, actor: Any) -> bool:
        """Whether it is a Ray actor."""
        return isinstance(actor, ray.actor.ActorHandle)

    # --- what travels ---------------------------------------------------------------------------------------------

    def dumps(self, value: Any) -> bytes:
        """Pickle with Ray's cloudpickle, which knows the classes that came by value before."""
        self._send_registered_modules()
        return bytes(cloudpickle.dumps(value))

    def loads(self, packed: bytes) -> Any:
        """Undo `dumps`."""
        return cloudpickle.loads(packed)

    def ship_by_value(self, module: Any) -> bool:
        """From now on pickle what `module` defines by value; False where that was so before."""
        if module.__name__ in cloudpickle.list_registry_pickle_by_value():
            return False
        cloudpickle.register_pickle_by_value(module)
        return True

    def _send_registered_modules(self) -> None:
        """What a user (or `flowrl.references`) told cloudpickle to send by value: Ray has a cloudpickle, and a registry, of its own."""
        for name in plain_cloudpickle.list_registry_pickle_by_value():
            if name in sys.modules:
                self.ship_by_value(sys.modules[name])

    def _send_modules_of(self, value: Any) -> None:
        """Send by value, from now on, the modules of a user's own that pickling `value` names and a worker could not import."""
        while True:
            named = _modules_named_in(cloudpickle.dumps(value, protocol=5, buffer_callback=lambda buffer: None))
            unknown = [name for name in named if name not in self._importable]
            elsewhere = ray.get([_can_import.remote(name) for name in unknown])
            self._importable.update(name for name, can in zip(unknown, elsewhere) if can)
            if not [name for name in unknown if name not in self._importable and self.ship_by_value(sys.modules[name])]:
                return

    def tasks(self, fn: Callable[[Any], Any], resources: Mapping[str, Any] | None) -> Tasks:
        """The function as Ray tasks."""
        return _RayTasks(fn, resources or {})

    def __reduce__(self) -> Any:
        return RayEngine, (self.address,)

    def __repr__(self) -> str:
        return f"RayEngine({'' if self.address is None else f'address={self.address!r}'})"


class _RayTasks:
    """`for_each(max_concurrency=)`: each item is a task; the function is put into the object store once."""

    def __init__(self, fn: Callable[[Any], Any], resources: Mapping[str, Any]) -> None:
        self.fn, self.resources = fn, resources
        self.shared: Any = None

    def submit(self, item: Any) -> Any:
        if self.shared is None:
            self.shared = ray.put(cloudpickle.dumps(self.fn))
        return _run_task.options(**_options(self.resources)).remote(self.shared, (item,))

    def result(self, call: Any, context: MetricsContext) -> Any:
        value, counted = ray.get(call)
        if counted:
            context.merge(counted)
        if isinstance(value, Failure):
            raise value.error(cloudpickle.loads)
        lock(value)
        return value


def _guarded(cls: type) -> type:
    """`cls`, but an error of its constructor is raised by whatever is asked of the actor, with its type, not told as a death."""

    class Guarded(cls):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            try:
                super().__init__(*args)
            except Exception as error:
                self.__dict__["__failure"] = Failure.of(error, cloudpickle.dumps, cloudpickle.loads)
                self.__class__ = Broken

    class Broken(Guarded):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("__"):
                return super().__getattribute__(name)
            failure: Failure = self.__dict__["__failure"]
            raise failure.error(cloudpickle.loads) if failure.whole is not None else CarriedFailure(failure)

    Guarded.__name__, Guarded.__qualname__, Guarded.__module__, Guarded.__doc__ = (
        cls.__name__,
        cls.__qualname__,
        cls.__module__,
        cls.__doc__,
    )
    return Guarded


@lru_cache(maxsize=16)
def _unpacked(packed: bytes) -> Callable[[Any], Any]:
    return cloudpickle.loads(packed)  # type: ignore[no-any-return]


@ray.remote(max_retries=0)  # type: ignore[untyped-decorator]
def _run_task(packed: bytes, boxed: tuple[Any]) -> tuple[Any, dict[str, Any] | None]:
    """The value or the `Failure`, and what was counted. The item comes in a box, since Ray would look inside an `ObjectRef`."""
    context = MetricsContext()
    try:
        with active(context):
            value = _unpacked(packed)(*boxed)
    except BaseException as error:
        value = Failure.of(error, cloudpickle.dumps, cloudpickle.loads)
    return value, None if context.empty else context.take()


@ray.remote(num_cpus=0, max_retries=0)  # type: ignore[untyped-decorator]
def _can_import(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _modules_named_in(packed: bytes) -> set[str]:
    """The modules that a pickle names, of those that are neither Python's, nor flowrl's, nor installed."""
    texts = {argument for op, argument, _ in pickletools.genops(packed) if op.name in ("SHORT_BINUNICODE", "BINUNICODE")}
    return {text for text in texts if text in sys.modules and is_the_users(sys.modules[text])}


def _options(resources: Mapping[str, Any]) -> dict[str, Any]:
    """`ray.remote` options of an actor or task: no CPU unless asked for, near the driver where asked."""
    options = {"num_cpus": 0, **resources}
    options.pop("task", None)
    if options.pop("near_driver", False):
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return options


def _sum_of(demands: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Ray's names of all that is asked for: actors together; a task once, since tasks wait for each other."""
    total: dict[str, float] = {}
    for demand in demands:
        named = {
            "CPU": demand.get("num_cpus", 0),
            "GPU": demand.get("num_gpus", 0),
            "memory": demand.get("memory", 0),
            **demand.get("resources", {}),
        }
        for name, amount in named.items():
            if amount:
                total[name] = max(total.get(name, 0.0), amount) if demand.get("task") else total.get(name, 0.0) + amount
    return total


def _shown(amounts: Mapping[str, float], names: Mapping[str, float] | None = None) -> str:
    return ", ".join(f"{name}: {amounts.get(name, 0):g}" for name in (names or amounts)) or "nothing"
