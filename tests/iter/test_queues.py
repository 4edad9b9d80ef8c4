"""Queues between branches and to threads: bounded, nothing dropped, whoever waits is woken."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from flowrl.errors import NotOpenError, PlanError, QueueClosedError
from flowrl.iter import Queue, from_iterable
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.reading import drain
from tests.iter.workers import slowly


@pytest.fixture
def background():
    """Start a function in a thread of the user's, and see it end."""
    threads = []

    def start(fn, *args):
        thread = threading.Thread(target=fn, args=args, daemon=True)
        threads.append(thread)
        thread.start()
        return thread

    yield start
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


# --- the queue itself -----------------------------------------------------------------------------------------------


def test_a_queue_gives_what_was_put_in_order():
    q = Queue(3)
    with q.open():
        q.put(1), q.put_nowait(2)
        assert (q.qsize(), q.empty(), q.full()) == (2, False, False)
        assert (q.get(), q.get_nowait(), q.empty()) == (1, 2, True)


def test_a_full_queue_refuses_and_an_empty_one_too():
    q = Queue(1)
    with q.open():
        with pytest.raises(queue.Empty):
            q.get_nowait()
        q.put(1)
        assert q.full()
        with pytest.raises(queue.Full):
            q.put_nowait(2)
        with pytest.raises(queue.Full, match="full for"):
            q.put(2, timeout=0.1)


@pytest.mark.parametrize("maxsize", [0, -1, None, True, 1.5, "3"])
def test_a_queue_must_have_a_bound(maxsize):
    with pytest.raises(PlanError, match="has no bound"):
        Queue(maxsize)


def test_a_closed_queue_says_what_to_do():
    with pytest.raises(NotOpenError, match="open it yourself"):
        Queue(1).put(1)


def test_a_waiting_get_is_woken_by_a_put(background):
    q, got = Queue(1), []
    with q.open():
        thread = background(lambda: got.append(q.get(timeout=10)))
        q.put("item")
        thread.join(10)
    assert got == ["item"]


# --- between two branches -------------------------------------------------------------------------------------------


def test_a_full_queue_stops_the_feeding_branch(engine):
    shared = Queue(3)
    feed = engine.shards(range(100)).gather_async().for_each(Enqueue(shared))
    with Concurrently([feed, Dequeue(shared).batch(1000)], mode="async", output_indexes=[0], round_robin_weights=[50, 1]).run() as stream:
        for _ in range(40):
            next(stream)
            assert shared.qsize() <= 3


def test_enqueue_hands_the_item_on_and_nothing_is_dropped(engine):
    shared = Queue(2)
    feed = engine.shards(range(30), range(100, 130)).gather_async(num_async=2).for_each(Enqueue(shared))
    plan = Concurrently([feed.for_each(lambda x: ("fed", x)), Dequeue(shared).for_each(lambda x: ("read", x))], mode="async")
    items = list(plan)
    expected = [*range(30), *range(100, 130)]
    assert sorted(x for how, x in items if how == "fed") == expected
    assert [x for how, x in items if how == "read"] == [x for how, x in items if how == "fed"]


def test_two_branches_may_write_one_queue_and_two_may_read_it(engine):
    shared = Queue(3)
    shards = engine.shards(range(20), range(100, 120))
    feeds = [shards.get_shard(i).for_each(Enqueue(shared)) for i in range(2)]
    plan = Concurrently([*feeds, Dequeue(shared), Dequeue(shared)], mode="async", output_indexes=[2, 3])
    assert sorted(plan) == [*range(20), *range(100, 120)]


def test_a_dequeue_ends_when_its_writers_have_ended_and_it_is_empty(engine):
    shared = Queue(8)
    feed = engine.shards(range(5)).gather_sync().for_each(Enqueue(shared))
    with Concurrently([feed, Dequeue(shared)], mode="round_robin", output_indexes=[1]).run() as stream:
        assert list(stream) == [0, 1, 2, 3, 4]
        assert next(stream, "end") == "end"


def test_a_chain_of_queues_passes_everything_on():
    first, second = Queue(1), Queue(2)
    feed = from_iterable(range(50)).for_each(Enqueue(first))
    middle = Dequeue(first).for_each(lambda x: -x).for_each(Enqueue(second))
    plan = Concurrently([feed, middle, Dequeue(second)], mode="async", output_indexes=[2])
    assert list(plan) == [-x for x in range(50)]


def test_each_run_begins_with_an_empty_queue():
    shared = Queue(50)
    plan = Concurrently(
        [from_iterable(range(20)).for_each(Enqueue(shared)), Dequeue(shared)], output_indexes=[1], round_robin_weights=[9, 1]
    )
    assert plan.take(2) == [0, 1]
    assert list(plan) == list(range(20))


def test_a_queue_that_the_user_opened_keeps_its_contents_from_run_to_run():
    shared = Queue(50)
    plan = Concurrently(
        [from_iterable(range(20)).for_each(Enqueue(shared)), Dequeue(shared)], output_indexes=[1], round_robin_weights=[9, 1]
    )
    with shared.open():
        taken = plan.take(2)
        left = [shared.get() for _ in range(shared.qsize())]
    assert [*taken, *left] == list(range(len(taken) + len(left)))
    assert len(left) > 5


def test_a_queue_puts_items_of_any_kind(engine):
    import numpy as np

    shared = Queue(2)
    feed = engine.shards([None, np.arange(3), [], StopIteration()]).gather_sync().for_each(Enqueue(shared))
    items = list(Concurrently([feed, Dequeue(shared)], output_indexes=[1]))
    assert [type(item) for item in items] == [type(None), np.ndarray, list, StopIteration]


# --- to a thread ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [lambda: queue.Queue(2), lambda: queue.LifoQueue(1)])
def test_a_thread_may_write_what_the_plan_reads(background, kind):
    shared = kind()

    def write():
        for item in range(40):
            shared.put(item)

    background(write)
    assert sorted(Dequeue(shared).take(40)) == list(range(40))


def test_a_thread_may_read_what_the_plan_writes(background):
    shared, got = queue.Queue(1), []

    def read():
        while (item := shared.get()) != 39:
            got.append(item)

    background(read)
    assert from_iterable(range(40)).for_each(Enqueue(shared)).take(40) == list(range(40))
    deadline = time.monotonic() + 10
    while len(got) < 39 and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert got == list(range(39))


def test_an_idle_plan_is_woken_when_a_thread_puts(background):
    shared = queue.Queue(4)
    with Dequeue(shared).run() as stream:
        background(lambda: (threading.Event().wait(0.2), shared.put("late")))
        assert next(stream) == "late"


def test_a_plan_that_waits_for_calls_and_a_thread_is_woken_by_either(on_ray, background):
    shared = queue.Queue(4)
    slow = on_ray.shards(slowly(["shard"], 0.6)).gather_async()
    with Dequeue(shared).union(slow).run() as stream:
        background(lambda: (threading.Event().wait(0.2), shared.put("thread"), threading.Event().wait(0.8), shared.put("again")))
        began = time.monotonic()
        assert [next(stream), next(stream), next(stream)] == ["thread", "shard", "again"]
        assert time.monotonic() - began < 5


def test_a_user_opened_queue_may_have_its_other_end_in_a_thread(background):
    """A plan that reads an opened `fl.Queue` which a thread writes."""
    shared = Queue(2)
    with shared.open():
        background(lambda: [shared.put(item) for item in range(20)])
        assert Dequeue(shared).take(20) == list(range(20))


def test_once_check_is_false_the_rest_comes_then_an_error_then_the_end():
    shared = queue.Queue(10)
    for item in range(3):
        shared.put(item)
    with Dequeue(shared, check=lambda: False).run() as stream:
        seen = drain(stream)
    assert seen[:3] == [0, 1, 2]
    assert [type(error) for error in seen[3:]] == [QueueClosedError]


def test_check_is_asked_while_the_run_sleeps(background):
    alive = threading.Event()
    alive.set()
    with Dequeue(queue.Queue(1), check=alive.is_set).run() as stream:
        background(lambda: (threading.Event().wait(0.3), alive.clear()))
        began = time.monotonic()
        with pytest.raises(QueueClosedError):
            next(stream)
        assert time.monotonic() - began < 5


def test_a_check_that_is_true_again_lets_the_stream_go_on():
    shared, alive = queue.Queue(4), [False]
    with Dequeue(shared, check=lambda: alive[0]).run() as stream:
        with pytest.raises(QueueClosedError):
            next(stream)
        alive[0] = True
        shared.put("more")
        assert next(stream) == "more"


def test_leaving_a_run_leaves_no_thread_behind():
    before = set(threading.enumerate())
    shared = queue.Queue(1)
    with Dequeue(shared).union(from_iterable([1])).run() as stream:
        assert next(stream) == 1
        shared.put(2)
        assert next(stream) == 2
        threading.Timer(0.1, shared.put, [3]).start()
        assert next(stream) == 3
    assert {thread for thread in threading.enumerate() if not isinstance(thread, threading.Timer)} <= before
