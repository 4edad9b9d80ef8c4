"""A running plan in the hands of its user: loops that live on, and what closing does."""

import queue
import threading

import pytest

import flowrl as fl
from flowrl.iter import ParallelIteratorWorker, Queue, current_engine, from_actors, from_iterable, from_range
from flowrl.iter import engine as engine_block
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import Source


def outcomes(items, most: int = 20) -> list:
    """What `next` gives, errors by their type, up to the end."""
    got = []
    for _ in range(most):
        try:
            got.append(next(items))
        except StopIteration:
            return got
        except ZeroDivisionError:
            got.append("error")
    raise AssertionError("it never ends")


PLANS = {
    "local": lambda: from_iterable(range(5)).for_each(lambda x: 6 // (x - 2)),
    "union": lambda: from_iterable(range(5)).for_each(lambda x: 6 // (x - 2)).union(from_iterable([]), deterministic=True),
    "flatten": lambda: from_iterable([[0, 1], [2, 3, 4]]).flatten().for_each(lambda x: 6 // (x - 2)),
    "shards": lambda: from_range(5, 1).for_each(lambda x: 6 // (x - 2)).gather_sync(),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize(
    "iterate", [iter, lambda plan: iter(plan.run()), lambda plan: plan.run(), lambda plan: plan], ids=["plan", "loop", "stream", "next"]
)
def test_after_an_error_the_iterator_goes_on_with_the_next_item(plan, iterate, serial):
    assert outcomes(iterate(plan())) == [-3, -6, "error", 6, 3]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_closing_a_stream_inside_its_loop_ends_the_loop(plan, serial):
    got = []
    with plan().run() as stream:
        for x in stream:
            got.append(x)
            stream.close()
    assert got == [-3]


def test_a_stream_lives_as_long_as_a_loop_over_it(serial):
    assert list(from_iterable(range(4)).run()) == [0, 1, 2, 3]
    assert list(from_range(4, 2).gather_sync().run()) == [0, 2, 1, 3]


def test_the_engine_of_a_block_can_be_named_in_run():
    with engine_block("serial") as serial:
        plan = from_range(8, 2).gather_async()
        assert list(plan.run(engine=serial)) == list(plan.run(engine=current_engine())) == list(plan)


def test_an_engines_class_is_no_engine():
    with pytest.raises(fl.PlanError, match="is not an engine"):
        from_range(2).gather_sync().run(engine=fl.SerialEngine)


def test_counts_of_a_union_are_those_of_each_branch(serial):
    with from_iterable(range(4)).union(from_iterable(range(2)), deterministic=True).run() as stream:
        assert len(list(stream)) == 6
        counts = [(edge["items_in"], edge["items_out"]) for _, _, edge in stream.graph().edges(data=True)]
    assert counts == [(4, 4), (2, 2)]


def test_counts_of_duplicates_are_those_of_each_child(serial):
    one, other = from_iterable(range(4)).duplicate(2)
    with one.union(other, round_robin_weights=[1, 1]).run() as stream:
        list(stream)
        assert {(edge["items_in"], edge["items_out"]) for _, _, edge in stream.graph().edges(data=True)} == {(4, 4)}


@pytest.mark.parametrize("mode", ["round_robin", "async"])
@pytest.mark.parametrize("reader_first", [True, False])
def test_a_thread_between_two_queues_of_the_plan_holds_no_branch_up(mode, reader_first, serial):
    to_thread, from_thread = queue.Queue(2), queue.Queue(2)

    def work() -> None:
        for _ in range(10):  # one output for two inputs
            from_thread.put((to_thread.get(), to_thread.get()))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    branches = [Dequeue(from_thread), from_iterable(range(20)).for_each(Enqueue(to_thread)).filter(lambda x: False)]
    plan = Concurrently(branches if reader_first else branches[::-1], mode=mode)
    with plan.run() as stream:
        assert [next(stream) for _ in range(10)] == [(x, x + 1) for x in range(0, 20, 2)]
    thread.join(10)
    assert not thread.is_alive()


def test_a_queue_that_the_user_opened_may_have_the_users_thread_at_its_other_end(serial):
    shared = Queue(2)
    with shared.open():
        thread = threading.Thread(target=lambda: [shared.put(x) for x in range(6)], daemon=True)
        thread.start()
        with Dequeue(shared).run() as stream:
            assert [next(stream) for _ in range(6)] == list(range(6))
        thread.join(10)


class NoLicence(Exception):
    def __init__(self, seat: int, owner: str) -> None:
        super().__init__(f"no licence for {owner}")
        self.seat = seat


class Picky(ParallelIteratorWorker):
    def __init__(self) -> None:
        raise NoLicence(3, "the simulator")

    def greet(self) -> str:
        return f"hello {self.name}"


def test_an_error_of_a_constructor_keeps_its_type_on_every_engine(engine):
    worker = fl.create_colocated(Picky, [], 1)
    with pytest.raises(NoLicence, match="no licence for the simulator") as caught:
        from_actors(worker).gather_sync().take(1)
    assert caught.value.seat == 3
    assert any("opened" in note and "test_stream.py:" in note for note in caught.value.__notes__)


def test_what_partitions_lose_of_user_actors_is_counted(engine):
    plan = engine.shards(range(40), range(40)).repartition(2).gather_async(num_async=2)
    with plan.run() as stream:
        got = [next(stream) for _ in range(3)]
    dropped = stream.metrics.counters["num_items_dropped"]
    left = [len(list(from_actors([actor]).gather_sync().run())) for actor in engine.pool(2, Source)]
    assert left == [40, 40]
    assert len(got) == 3
    assert 0 < dropped <= 77


def test_items_of_a_reused_array_are_as_they_were_made(engine):
    import numpy as np

    def reused():
        array = np.zeros(1)
        for index in range(4):
            array[0] = index
            yield array

    plan = engine.shards(reused).gather_async(batch_ms=50)
    assert [float(x[0]) for x in plan] == [0, 1, 2, 3]


def test_unseeded_shuffles_repeat_with_the_serial_engines_seed():
    plan = from_range(50, 2).local_shuffle(20).gather_sync().shuffle(10)
    runs = [list(plan.run(engine=fl.SerialEngine(seed=seed))) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert sorted(runs[0]) == list(range(50))


@pytest.mark.parametrize("give", [lambda plan: Concurrently(plan), lambda plan: fl.from_items(plan), lambda plan: fl.from_iterable(plan)])
def test_a_plan_in_the_place_of_a_list_is_refused_and_not_run(give):
    def boom(x):
        raise AssertionError("it ran")

    with pytest.raises(fl.PlanError, match=r"test_stream\.py:"):
        give(from_iterable([1]).for_each(boom))
