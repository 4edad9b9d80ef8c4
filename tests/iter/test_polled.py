"""Sources that may have nothing to give before another branch has acted: a replay below its start."""

from __future__ import annotations

import threading
import time

import pytest

from flowrl.errors import DeadlockError
from flowrl.iter import ParallelIteratorWorker, create_colocated, from_actors, from_items, from_iterable
from flowrl.iter.sources import Polled
from flowrl.ops import Concurrently


class Well(ParallelIteratorWorker):
    """Gives what was put into it, oldest first; nothing before `start` items are there. Counts how often it was asked."""

    def __init__(self, start: int = 1) -> None:
        super().__init__(Polled(self.take, lambda: f"{self.start} items"), repeat=False)
        self.items: list = []
        self.start, self.num_asked, self.has_started = start, 0, False

    def put(self, *items) -> None:
        self.items.extend(items)

    def take(self):
        self.num_asked += 1
        self.has_started = self.has_started or len(self.items) >= self.start
        return self.items.pop(0) if self.items and self.has_started else None

    def asked(self) -> int:
        return self.num_asked

    def broken(self) -> None:
        raise ArithmeticError("broken")


def wells_of(count=1, start=1):
    return create_colocated(Well, [start], count)


def filling(wells, items):
    """A branch that puts item i into well i mod n."""
    count = iter(range(10**9))
    from flowrl.metrics import get_metrics

    def put(x):
        well = wells[next(count) % len(wells)]
        get_metrics().run.tell(well.put.remote(x), to=well)
        return x

    return from_iterable(items).for_each(put)


GATHERS = {
    "async": lambda shards: shards.gather_async(),
    "async, 4 in flight": lambda shards: shards.gather_async(num_async=4),
    "async, batch_ms": lambda shards: shards.gather_async(batch_ms=2),
    "stages": lambda shards: shards.for_each(lambda x: x).filter(lambda x: True).combine(lambda x: [x]).gather_async(num_async=2),
    "transform": lambda shards: shards.transform(iter).gather_async(),
    "sync": lambda shards: shards.gather_sync(),
    "lists": lambda shards: shards.batch_across_shards().flatten(),
}


@pytest.mark.parametrize("gather", GATHERS.values(), ids=GATHERS)
@pytest.mark.parametrize("mode", ["async", "round_robin"])
def test_all_that_is_put_in_comes_out_once(engine, gather, mode):
    wells = wells_of(2)
    plan = Concurrently([filling(wells, range(40)), gather(from_actors(wells))], mode=mode, output_indexes=[1])
    with plan.run() as stream:
        seen = [next(stream) for _ in range(40)]
        assert sorted(seen) == list(range(40))
        assert [x for x in seen if not x % 2] == list(range(0, 40, 2))  # each well's own order
        with pytest.raises(DeadlockError):
            next(stream)


def test_it_goes_on_after_a_deadlock_was_raised_and_something_reached_it(engine):
    (well,) = wells_of()
    with from_actors([well]).gather_async().run() as stream:
        for item in "ab":
            with pytest.raises(DeadlockError, match="nothing to give yet"):
                next(stream)
            well.put.remote(item)
            assert next(stream) == item


def test_it_is_asked_once_for_each_call_that_reached_it(engine):
    """However many calls it may have in flight, and however often the run is pulled."""
    (well,) = wells_of(start=30)
    ticks = filling([well], range(29))
    plan = Concurrently([ticks, from_actors([well]).gather_async(num_async=4)], mode="async", output_indexes=[0])
    with plan.run() as stream:
        for _ in range(29):
            next(stream)
        asked = engine.inner.result(well.asked.remote())
    assert asked <= 4 + 29  # at first all four; then once a call


def test_once_it_has_something_it_has_as_many_calls_in_flight_as_it_may(engine):
    (well,) = wells_of(start=10)
    branch = from_actors([well]).gather_async(num_async=4)
    plan = Concurrently([filling([well], range(100)), branch], mode="round_robin", output_indexes=[1], round_robin_weights=[20, 1])
    with plan.run() as stream:
        for _ in range(5):
            next(stream)
        (gather,) = stream._run.gathers
        assert sum(len(shard.calls) for shard in gather.shards) >= 3 and gather.num_parked == 0


def test_an_error_of_the_source_keeps_its_type_and_names_its_operator(engine):
    class Broken(Well):
        def take(self):
            raise ArithmeticError("broken")

    (well,) = create_colocated(Broken, [], 1)
    with from_actors([well]).gather_async().run() as stream, pytest.raises(ArithmeticError, match="broken") as raised:
        next(stream)
    assert "from_actors" in "".join(raised.value.__notes__)


def test_an_open_actor_that_others_reach_is_asked_again_now_and_then(on_ray):
    """By its Ray handle, which no run sees."""
    (well,) = wells_of()
    with well.open(), from_actors([well]).gather_async().run() as stream:
        threading.Timer(0.4, lambda: well.live.put.remote(7)).start()
        began, cpu = time.monotonic(), time.process_time()
        assert next(stream) == 7
        waited = time.monotonic() - began
        assert waited < 5 and time.process_time() - cpu < 0.5 * waited


def test_beside_a_branch_that_waits_for_calls_it_is_asked_again_too(on_ray):
    (well,) = wells_of()
    slow = from_items([0, 1], num_shards=1).for_each(lambda x: (time.sleep(3 * x), x)[1]).gather_async()
    with well.open(), from_actors([well]).gather_async().union(slow).run() as stream:
        assert next(stream) == 0
        threading.Timer(0.2, lambda: well.live.put.remote(7)).start()
        assert next(stream) == 7  # before the slow one


def test_a_barrier_beside_one_in_the_driver_sleeps_where_it_gets_its_items(on_ray, monkeypatch):
    """As it does alone: one fetch for a round, and no wait before it."""
    items: list[int] = []
    replay = from_iterable(Polled(lambda: items.pop() if items else None, lambda: "items"))
    rounds = on_ray.shards(range(50), range(50)).gather_sync().for_each(lambda x: (items.append(x), x)[1])
    with Concurrently([rounds, replay], mode="round_robin", output_indexes=[1]).run() as stream:
        next(stream)
        with monkeypatch.context() as patched:
            patched.setattr(on_ray.inner, "wait", lambda calls, *how: pytest.fail("it waited"))
            assert len([next(stream) for _ in range(99)]) == 99


def test_a_dead_one_is_told_of_once_and_the_others_go_on(on_ray):
    import ray

    wells = wells_of(2)
    plan = Concurrently([filling(wells[:1], range(10**6)), from_actors(wells).gather_async()], mode="async", output_indexes=[1])
    with plan.run() as stream:
        next(stream)
        ray.kill(wells[1].live)
        failures = 0
        for _ in range(200):
            try:
                next(stream)
            except Exception as error:
                assert type(error).__name__ == "RayActorDiedError"
                failures += 1
        assert failures <= 1
