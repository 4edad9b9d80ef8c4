"""Leaving a run, however, stops all that it opened; nothing is orphaned (C13)."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from flowrl.iter import ActorHandle, Queue, from_actors, from_iterable, from_iterators
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.conftest import ROOT
from tests.iter.workers import Source, living_actors, slowly


def pids_of(stream):
    """The processes of a run's own shards."""
    actors = [shard.actor for _, shard in stream._run.shard_plans]
    return [stream.engine.result(actor.pid.remote()) for actor in actors]


def is_gone(pid, within_s=10.0):
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        threading.Event().wait(0.05)
    return False


def plan_of(items=range(10)):
    """A shard in an actor that the run opens."""
    return from_actors([ActorHandle(Loaded, [items])])


class Loaded(Source):
    """A shard with items from the start."""

    def __init__(self, items):
        super().__init__()
        self.load(items, False)


def at_end(stream):
    list(stream)


def by_break(stream):
    for _ in stream:
        break


def by_error(stream):
    raise KeyError


def by_interrupt(stream):
    raise KeyboardInterrupt


@pytest.mark.parametrize("leave", [at_end, by_break, by_error, by_interrupt])
def test_leaving_a_run_ends_its_actors(on_ray, leave):
    with plan_of().gather_async(num_async=2).run() as stream:
        next(stream)
        (pid,) = pids_of(stream)
        try:
            leave(stream)
        except (KeyError, KeyboardInterrupt):
            stream.close()
        if leave is at_end:
            assert is_gone(pid), "it ends at the end of the stream, not of the block"
    assert is_gone(pid)


def test_leaving_a_run_with_a_repartition_ends_all_its_actors(on_ray):
    with plan_of().repartition(2).gather_sync().run() as stream:
        next(stream)
        assert len(stream._run.shard_plans) == 3
        (pid,) = pids_of_source(stream)
    assert is_gone(pid)
    until = time.monotonic() + 10
    while "ParallelIteratorWorker" in living_actors() and time.monotonic() < until:
        threading.Event().wait(0.05)
    assert "ParallelIteratorWorker" not in living_actors()


def pids_of_source(stream):
    sources = [shard.actor for plan, shard in stream._run.shard_plans if hasattr(shard.actor, "pid")]
    return [stream.engine.result(actor.pid.remote()) for actor in sources]


def test_iterating_a_plan_and_leaving_the_loop_ends_its_actors(on_ray):
    plan = plan_of().gather_sync()
    for _ in plan:
        break
    gc.collect()
    assert not plan._node.input.actors[0].is_open


def test_a_run_that_next_continues_ends_by_close_by_with_or_when_collected(serial):
    plan = plan_of().gather_sync()
    (handle,) = plan._node.input.actors
    assert (next(plan), next(plan)) == (0, 1)
    assert handle.is_open
    plan.close()
    assert not handle.is_open
    with plan:
        assert next(plan) == 0, "it starts over"
    assert not handle.is_open
    next(plan)
    with pytest.warns(ResourceWarning, match="was never closed"):
        del plan
        gc.collect()
    assert not handle.is_open


def test_a_run_that_next_continues_is_closed_at_its_end(serial):
    plan = plan_of(range(2)).gather_sync()
    (handle,) = plan._node.input.actors
    assert [next(plan), next(plan), next(plan, "end")] == [0, 1, "end"]
    assert not handle.is_open
    assert next(plan, "end") == "end", "it stays at its end until it is closed"
    plan.close()
    assert next(plan) == 0
    plan.close()


@pytest.mark.parametrize(
    "make",
    [lambda: from_iterable(range(3)), lambda: plan_of(range(3)).gather_sync(), lambda: from_iterable("ab").union(from_iterable("c"))],
)
@pytest.mark.parametrize("read", [list, lambda stream: [next(stream, None) for _ in range(4)]])
def test_a_stream_that_was_read_to_its_end_needs_no_close(serial, make, read):
    stream = make().run()
    read(stream)
    assert stream.is_over and "closed" in repr(stream)
    del stream
    gc.collect()


def test_a_closed_stream_says_so(serial):
    with plan_of().gather_sync().run() as stream:
        next(stream)
    for read in (next, list):
        with pytest.raises(ValueError, match=r"closed: run the plan again"):
            read(stream)
    stream.close()


def test_user_actors_go_on(engine):
    plan = engine.shards(range(5)).gather_sync()
    assert plan.take(1) == [0]
    assert engine.ask(engine.pool(1, Source)[0], "pid") > 0
    assert list(plan) == [0, 1, 2, 3, 4]


def test_a_user_actor_that_is_busy_when_its_run_is_left_does_not_hold_it_up(on_ray):
    began = time.monotonic()
    with on_ray.shards(slowly(range(3), 0.5)).gather_async(num_async=2).union(from_iterable([1])).run() as stream:
        assert next(stream) == 1
    assert time.monotonic() - began < 5


def test_closing_a_run_closes_generators_in_the_shards(engine):
    (recorder,) = engine.pool(1, ForgetfulRecorder)
    engine.ask(recorder, "clear")

    def watched(items):
        try:
            yield from items
        finally:
            recorder.tell.remote("closed")

    with engine.shards(range(5)).transform(watched).gather_sync().run() as stream:
        next(stream)
    until = time.monotonic() + 5
    while engine.ask(recorder, "all") != ["closed"] and time.monotonic() < until:
        pass
    assert engine.ask(recorder, "all") == ["closed"]


class ForgetfulRecorder:
    """What it was told, since it was cleared."""

    def __init__(self):
        self.told = []

    def tell(self, value):
        self.told.append(value)

    def all(self):
        return self.told

    def clear(self):
        self.told = []


def test_no_thread_is_left_of_a_run_with_threads(engine):
    before = set(threading.enumerate())
    shared = Queue(2)
    feed = engine.shards(range(9)).gather_async().transform(lambda items: (x for x in items)).for_each(Enqueue(shared))
    with Concurrently([feed, Dequeue(shared).transform(iter)], mode="async").run() as stream:
        next(stream)
    assert [thread.name for thread in set(threading.enumerate()) - before if "flowrl" in thread.name] == []


def test_a_plan_of_its_own_shards_leaves_no_actor_behind_on_the_serial_engine(serial):
    with from_iterators([[1, 2], [3]]).gather_async(num_async=2).run() as stream:
        next(stream)
        actors = [shard.actor for _, shard in stream._run.shard_plans]
    assert [actor.instance for actor in actors] == [None, None]


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys, threading, time
from flowrl.iter import ActorHandle, from_actors, from_iterable, engine
from flowrl.iter.ray_engine import RayEngine
from tests.iter.workers import slowly
from tests.iter.test_leaving import Loaded, is_gone, pids_of

where, address = sys.argv[1], sys.argv[2]
import ray
ray.init(address=address, log_to_driver=False, logging_level="error")
with engine("ray"):
    plan = from_actors([ActorHandle(Loaded, [slowly(range(10**6), 0.01 if where == "handling" else 3600)])]).gather_async()
    stream = plan.run()
    try:
        with stream:
            pids = pids_of(stream)
            print("ready", flush=True)
            if where == "handling":
                for item in stream:
                    time.sleep(3600)
            next(stream)
    except KeyboardInterrupt:
        print("interrupted", all(is_gone(pid) for pid in pids), threading.active_count() < 20, flush=True)
"""


@pytest.mark.parametrize("where", ["waiting", "handling"])
def test_ctrl_c_ends_the_actors_of_a_run(ray_cluster, where):
    """While the driver waits for a shard that takes an hour, and while the consumer handles an item."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), where, ray_cluster],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "ready\n" in iter(child.stdout.readline, "")  # Ray may have said something before
        threading.Event().wait(0.5)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
        child.communicate()
    assert out.splitlines()[-1] == "interrupted True True", err
    assert child.returncode == 0
