"""What all tests share: the two engines, one local Ray cluster for the whole session, and a pool of actors on each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from flowrl.iter import ParallelIterator, SerialEngine, from_actors
from flowrl.iter import engine as engine_block
from flowrl.iter.choose import engine_by_name
from tests.iter.workers import Source

ROOT = Path(__file__).resolve().parent.parent
NUM_CPUS = 4
OBJECT_STORE_BYTES = 200 * 2**20

# On a busy machine an example may take its time: what is slow by itself is found by the timeout of a test.
settings.register_profile("flowrl", deadline=None)
settings.load_profile("flowrl")

# A shell starts what runs in its background with SIGINT ignored, and children would inherit that: Ctrl-C is tested all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)


class EngineUnderTest:
    """An engine and a pool of actors on it that lives as long as the session: starting one on Ray costs a second."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inner = engine_by_name("ray") if name == "ray" else SerialEngine()
        self._pools: dict[tuple[Any, ...], list[Any]] = {}

    def pool(self, count: int, cls: type, *args: Any) -> list[Any]:
        """`count` actors `cls(*args)` that other tests use too: their state is whatever they were left with."""
        actors = self._pools.setdefault((cls, *args), [])
        while len(actors) < count:
            actors.append(self.inner.start(cls, *args))
        return actors[:count]

    def shards(self, *sources: Any, repeat: bool = False) -> ParallelIterator[Any]:
        """One shard for each iterable or factory, over actors of the pool."""
        actors = self.pool(len(sources), Source)
        for actor, source in zip(actors, sources):
            self.ask(actor, "load", source, repeat)
        return from_actors(actors)

    def ask(self, actor: Any, method: str, *args: Any) -> Any:
        """`method(*args)` of an actor, now."""
        return self.inner.result(self.inner.call(actor, method, *args))

    def close(self) -> None:
        for actors in self._pools.values():
            for actor in actors:
                self.inner.stop(actor)
        self._pools.clear()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """One local Ray cluster for all tests of the session; its address."""
    import flowrl.iter.ray_engine  # noqa: F401, I001  (sets Ray's environment before Ray is there)
    import ray

    context = ray.init(
        num_cpus=NUM_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=OBJECT_STORE_BYTES,
    )
    yield context.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture(scope="session")
def serial_under_test() -> Iterator[EngineUnderTest]:
    under_test = EngineUnderTest("serial")
    yield under_test
    under_test.close()


@pytest.fixture(scope="session")
def ray_under_test(ray_cluster: str) -> Iterator[EngineUnderTest]:
    under_test = EngineUnderTest("ray")
    yield under_test
    under_test.close()


@pytest.fixture(params=["serial", "ray"])
def engine(request: pytest.FixtureRequest) -> Iterator[EngineUnderTest]:
    """Each engine in turn; runs of the test that do not say otherwise use it."""
    under_test: EngineUnderTest = request.getfixturevalue(f"{request.param}_under_test")
    with engine_block(under_test.inner):
        yield under_test


@pytest.fixture
def serial(serial_under_test: EngineUnderTest) -> Iterator[EngineUnderTest]:
    """The serial engine alone."""
    with engine_block(serial_under_test.inner):
        yield serial_under_test


@pytest.fixture
def on_ray(ray_under_test: EngineUnderTest) -> Iterator[EngineUnderTest]:
    """The Ray engine alone."""
    with engine_block(ray_under_test.inner):
        yield ray_under_test


@pytest.fixture(scope="session")
def python() -> Callable[..., str]:
    """Run a script in a fresh interpreter; what it printed. A failure shows both outputs."""

    def run(script: str, *args: str, timeout_s: float = 90) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), *args],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
