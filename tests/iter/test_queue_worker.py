"""What works between two queues of a plan: a learner, as the run sees it."""

import threading
import time
import traceback

import numpy as np
import pytest

from flowrl.errors import ActorDiedError, DeadlockError, NotOpenError, PlanError
from flowrl.iter import ParallelIteratorWorker, create_colocated, from_actors, from_items, from_iterable, from_range
from flowrl.iter.queue_worker import QueueWorker
from flowrl.ops import Concurrently, Dequeue, Enqueue


class Doubler(QueueWorker):
    """Doubles each item; dies of item 7 where asked to."""

    def __init__(self, dies_of=None, waits_for=None, sizes=(2, 2)):
        super().__init__(*sizes)
        self.dies_of, self.waits_for = dies_of, waits_for

    def work(self, item):
        if self.waits_for is not None:
            self.waits_for.wait(30)
        if item == self.dies_of:
            raise ArithmeticError(f"item {item}")
        return 2 * item


class Mortal(ParallelIteratorWorker):
    """One item, then nothing for long."""

    def __init__(self):
        super().__init__(lambda: (time.sleep(30 * x) or x for x in range(2)), False)


def plan_over(worker, source, mode="async", weights=None):
    feed = source.for_each(Enqueue(worker.inqueue))
    read = Dequeue(worker.outqueue, check=worker.is_alive)
    return Concurrently([feed, read], mode=mode, output_indexes=[1], round_robin_weights=weights)


MODES = [("async", None), ("round_robin", None), ("round_robin", [3, 1]), ("round_robin", [1, "*"])]


@pytest.mark.parametrize(("mode", "weights"), MODES)
def test_all_that_goes_in_comes_out_in_order_and_the_stream_ends(engine, mode, weights):
    with plan_over(Doubler(), from_iterable(range(200)), mode, weights).run() as stream:
        assert list(stream) == list(range(0, 400, 2))


def test_fed_from_shards_all_comes_out(engine):
    plan = plan_over(Doubler(), from_range(60, num_shards=3).gather_async(num_async=2))
    with plan.run() as stream:
        assert sorted(stream) == list(range(0, 120, 2))


def test_a_plan_runs_again_from_the_start(engine):
    plan = plan_over(Doubler(), from_iterable(range(5)))
    for _ in range(2):
        with plan.run() as stream:
            assert list(stream) == [0, 2, 4, 6, 8]


def test_what_it_dies_of_is_raised_with_its_own_traceback_each_time(engine):
    with plan_over(Doubler(dies_of=3), from_iterable(range(10))).run() as stream:
        assert [next(stream), next(stream), next(stream)] == [0, 2, 4]
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(ArithmeticError, match="item 3") as raised:
                next(stream)
            assert time.monotonic() - began < 5
            shown = "".join(traceback.format_exception(raised.value))
            assert "in work" in shown and "Doubler" in shown and "Dequeue" in shown
            assert shown.count('raise ArithmeticError(f"item {item}")') == 1


def test_what_it_dies_of_is_raised_also_while_the_feeding_branch_waits(on_ray):
    """A strict round robin waits for the slow shard; the dead learner is told of before that."""
    slow = from_items([0, 1], num_shards=1).for_each(lambda x: (time.sleep(8 * x), x)[1]).gather_async()
    with plan_over(Doubler(dies_of=0), slow, "round_robin").run() as stream:
        began = time.monotonic()
        with pytest.raises(ArithmeticError, match="item 0"):
            next(stream)
        assert time.monotonic() - began < 5


def test_a_plan_that_feeds_it_and_never_reads_it_is_refused():
    worker = Doubler()
    with pytest.raises(PlanError, match="outqueue nothing in the plan reads"):
        from_iterable(range(3)).for_each(Enqueue(worker.inqueue)).check()


def test_a_plan_that_reads_it_and_never_feeds_it_is_refused():
    with pytest.raises(PlanError, match="nothing in the plan feeds it"):
        Dequeue(Doubler().outqueue).check()


def test_building_and_checking_starts_no_thread():
    before = threading.active_count()
    plan_over(Doubler(), from_iterable(range(3))).check()
    assert threading.active_count() == before


def test_leaving_a_run_ends_its_thread(on_ray):
    before = threading.active_count()
    with plan_over(Doubler(), from_iterable(range(10))).run() as stream:
        assert next(stream) == 0
    assert threading.active_count() == before


def test_leaving_a_run_it_finishes_its_item_and_takes_no_other(on_ray):
    worked = []

    class Slow(QueueWorker):
        def work(self, item):
            time.sleep(0.05)
            worked.append(item)
            return item

    with plan_over(Slow(16, 16), from_iterable(range(100))).run() as stream:
        next(stream)
    count = len(worked)
    time.sleep(0.2)
    assert count == len(worked) < 10


def test_an_item_that_outlasts_its_run_says_nothing_to_the_next_one(on_ray, monkeypatch):
    """It fails while the next run goes on, which has a thread and queues of its own."""
    monkeypatch.setattr("flowrl.iter.queue_worker.JOIN_S", 0.05)
    goes_on = threading.Event()
    worker = Doubler(dies_of=7, waits_for=goes_on)
    feed = from_iterable([7]).for_each(Enqueue(worker.inqueue))
    with Concurrently([feed, Dequeue(worker.outqueue)], mode="async", output_indexes=[0]).run() as stream:
        assert next(stream) == 7
        while not worker.inqueue.empty():
            time.sleep(0.001)
    (left,) = worker._left
    with plan_over(worker, from_iterable(range(6))).run() as stream:
        goes_on.set()
        left.join()
        assert list(stream) == [0, 2, 4, 6, 8, 10]
        assert worker.failure is None


def test_on_the_serial_engine_it_has_no_thread():
    threads = set()

    class Watcher(Doubler):
        def work(self, item):
            threads.add(threading.get_ident())
            return item

    with plan_over(Watcher(), from_iterable(range(5))).run(engine="serial") as stream:
        assert list(stream) == list(range(5))
    assert threads == {threading.get_ident()}


def test_while_closed_its_queues_and_its_life_can_be_asked_for():
    worker = Doubler()
    assert worker.is_alive() is False
    assert repr(worker.inqueue) == repr(worker.outqueue) == "Queue(maxsize=2)"
    with pytest.raises(NotOpenError):
        worker.inqueue.put(1)


def test_opened_by_the_user_it_serves_threads_of_theirs(on_ray):
    worker = Doubler()
    with worker.open(engine="ray"):
        worker.inqueue.put(21)
        assert worker.outqueue.get(timeout=10) == 42
        assert worker.is_alive()
    assert not worker.is_alive()


def test_full_queues_stand_still_and_nothing_is_lost(on_ray):
    """The worker sleeps: at most what two queues, the worker and the branch hold has been taken from the source."""
    gate, taken = threading.Event(), []
    source = from_iterable(range(50)).for_each(lambda x: (taken.append(x), x)[1])
    worker = Doubler(waits_for=gate)
    got = []
    with plan_over(worker, source).run() as stream:
        reader = threading.Thread(target=lambda: got.extend(stream))
        reader.start()
        time.sleep(0.5)
        held = len(taken)
        time.sleep(0.3)
        assert held == len(taken) <= 2 + 1 + 1
        gate.set()
        reader.join(20)
    assert got == list(range(0, 100, 2))


def test_a_branch_that_waits_for_what_can_never_come_is_a_deadlock_and_not_a_sleep(on_ray):
    """Nothing feeds the learner any more than the branch that reads it."""
    worker = Doubler()
    read = Dequeue(worker.outqueue).for_each(Enqueue(worker.inqueue))
    with read.run() as stream, pytest.raises(DeadlockError, match="Dequeue"):
        next(stream)


def test_branches_that_wait_for_each_other_while_calls_are_on_their_way_are_a_deadlock(on_ray):
    """What it makes goes back to it, and the shards fill it up: both queues are full, and answers that nobody can take are left."""

    class Slow(Doubler):
        def work(self, item):
            time.sleep(0.02)
            return super().work(item)

    worker = Slow(sizes=(1, 1))
    feed = on_ray.shards(range(50), range(50)).gather_async(num_async=2).for_each(Enqueue(worker.inqueue))
    back = Dequeue(worker.outqueue).for_each(Enqueue(worker.inqueue))
    plan = Concurrently([feed, back], mode="async", output_indexes=[1])
    with plan.run() as stream, pytest.raises(DeadlockError, match="Enqueue"):
        for _ in range(200):
            next(stream)


def test_answers_that_nobody_could_take_do_not_wake_the_run(on_ray, monkeypatch):
    """Behind a full queue they are found done when there is room again: a notice would have each of them unpickled for it."""
    gate, notices = threading.Semaphore(0), []

    class Slow(Doubler):
        def work(self, item):
            gate.acquire(timeout=30)
            return super().work(item)

    notify = on_ray.inner.notify
    monkeypatch.setattr(on_ray.inner, "notify", lambda call, wake: (notices.append(call), notify(call, wake))[1])
    plan = plan_over(Slow(), on_ray.shards(range(40), range(40)).gather_async(num_async=2))
    with plan.run() as stream:
        got = []
        for _ in range(80):
            threading.Timer(0.02, gate.release).start()
            got.append(next(stream))
    assert sorted(got) == sorted([*range(0, 80, 2)] * 2)
    assert len(notices) < 20


def test_who_dies_while_the_run_sleeps_on_calls_and_queues_is_told_of_by_its_own_error(on_ray):
    import ray

    (mortal,) = create_colocated(Mortal, [], 1)
    plan = plan_over(Doubler(), from_actors([mortal]).gather_async())
    with plan.run() as stream:
        assert next(stream) == 0
        threading.Timer(0.3, ray.kill, [mortal.live]).start()
        with pytest.raises(ActorDiedError, match=r"process is gone"):
            next(stream)


@pytest.mark.parametrize("make", [lambda: np.arange(12)[::2], lambda: np.ones(300_000), lambda: {"obs": np.arange(6)[::-1]}])
def test_arrays_that_wake_the_run_are_read_only_too(on_ray, make):  # C17
    shards = on_ray.shards(lambda: (time.sleep(0.2), iter([make()]))[1])
    inner = Doubler()
    inner.work = lambda item: item
    with plan_over(inner, shards.gather_async()).run() as stream:
        (item,) = list(stream)
    array = item["obs"] if isinstance(item, dict) else item
    assert np.array_equal(array, make()["obs"] if isinstance(item, dict) else make()) and not array.flags.writeable
