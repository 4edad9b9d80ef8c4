"""Building, checking, drawing or explaining a plan starts nothing: no actor, thread, env or Ray (C1)."""

from __future__ import annotations

import threading

import pytest

from flowrl.iter import (
    ActorHandle,
    Handle,
    Queue,
    create_colocated,
    from_actors,
    from_items,
    from_iterable,
    from_iterators,
    from_range,
)
from flowrl.iter import engine as engine_block
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import Source, living_actors


class Alarm(Exception):
    """Something was started, or an item was made."""


def alarm(*_):
    raise Alarm


class Bomb(Handle):
    """A handle that must not be opened."""

    start_live = alarm


class Uses:
    """An operator that names a handle."""

    __call__ = alarm

    def __init__(self, handle):
        self.handle = handle


class NeverMade(Source):
    """An actor that must not be started."""

    __init__ = alarm


def everything(actors):
    """A plan with every kind of node and every stage, each of which would raise if it were started."""
    shared = Queue(2)
    shards = [
        from_items([1, 2, 3]),
        from_range(10, num_shards=3, repeat=True),
        from_iterators([alarm, alarm], name="x"),
        from_actors(actors),
    ]
    parallel = (
        shards[0]
        .union(*shards[1:])
        .for_each(alarm)
        .for_each(alarm, max_concurrency=3, resources={"num_cpus": 1})
        .filter(alarm)
        .batch(2)
        .flatten()
        .combine(alarm)
        .local_shuffle(5, seed=1)
        .transform(alarm)
        .repartition(2, batch_ms=1)
        .select_shards([1, 0])
    )
    first, second = parallel.gather_async(batch_ms=3, num_async=2).for_each(alarm).filter(alarm).shuffle(3).duplicate(2)
    feed = first.combine(alarm).for_each(Enqueue(shared)).for_each(Uses(Bomb()))
    read = Dequeue(shared, check=alarm).batch(2).flatten().transform(alarm)
    other = from_iterable(alarm).union(second, deterministic=True, round_robin_weights=[1, "*"])
    sync = from_range(4).gather_sync().union(from_range(4).batch_across_shards(), from_range(6, 3).get_shard(1))
    return Concurrently([feed, read, other, sync], mode="async", output_indexes=[0, 3], round_robin_weights=[1, 2, 0.5, "*"])


@pytest.mark.parametrize("name", ["serial", "ray"])
def test_building_checking_drawing_and_explaining_start_nothing(name, ray_under_test, serial_under_test, tmp_path):
    """With Ray up, none of its actors is started; the next test sees that Ray is not started either."""
    before, threads = sorted(living_actors()), set(threading.enumerate())
    handles = [ActorHandle(NeverMade), *create_colocated(NeverMade, [], 2)]
    with engine_block(name):
        plan = everything(handles)
        plan.check()
        assert plan.graph().number_of_nodes() > 20
        assert "Concurrently" in plan.explain()
        for suffix in ("mmd", "dot", "svg", "html"):
            assert plan.draw(tmp_path / f"plan.{suffix}").stat().st_size > 500
        assert plan._repr_svg_().startswith("<")
        repr(plan)
        stream = plan.run()
        assert "not yet open" in repr(stream)
        stream.explain(), stream.graph()
        del stream
    assert not any(handle.is_open for handle in handles)
    assert set(threading.enumerate()) <= threads
    assert sorted(living_actors()) == before


def test_the_ray_engine_starts_ray_only_when_a_plan_runs(python):
    out = python(
        """
        import sys
        from flowrl.iter import create_colocated, from_actors, from_range, engine, ParallelIteratorWorker
        print("ray" in sys.modules)
        with engine("ray"):
            plan = from_range(10, num_shards=4).for_each(print).gather_async(num_async=3)
            plan.check(), plan.explain(), plan.graph()
            handles = create_colocated(ParallelIteratorWorker, [[], False], 2)
            from_actors(handles).gather_sync().check()
            stream = plan.run()
        import ray
        print(ray.is_initialized())
        """
    )
    assert out.split("\n")[:2] == ["False", "False"]
