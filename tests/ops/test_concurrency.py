"""`Concurrently`, `Enqueue`, `Dequeue`: what they add to a union. Turns and debts are tried in `tests/iter/test_unions.py`."""

from __future__ import annotations

import queue
import threading

import pytest

from flowrl.errors import PlanError, QueueClosedError
from flowrl.iter import Queue, from_iterable
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import never, slowly


def test_round_robin_takes_turns():
    assert list(Concurrently([from_iterable("abc"), from_iterable("xy")], mode="round_robin")) == list("axbyc")


def test_round_robin_is_the_default():
    assert list(Concurrently([from_iterable("ab"), from_iterable("xy")])) == list("axby")


def test_round_robin_waits_and_async_does_not(on_ray):
    def plan(mode):
        shards = on_ray.shards(slowly(["slow"], 0.4))
        return list(Concurrently([shards.gather_async(), from_iterable(range(6))], mode=mode))

    assert plan("round_robin") == ["slow", 0, 1, 2, 3, 4, 5]
    assert plan("async") == [0, 1, 2, 3, 4, 5, "slow"]


def test_all_branches_run_though_only_some_come_out(engine):
    seen = []
    hidden = engine.shards(range(5)).gather_async().for_each(seen.append)
    shown = from_iterable("abc")
    assert list(Concurrently([hidden, shown], mode="async", output_indexes=[1])) == ["a", "b", "c"]
    assert seen == list(range(5)), "the plan ends when all of its branches have ended"


@pytest.mark.parametrize(("indexes", "expected"), [(None, "ax1by2"), ([0], "ab"), ([2, 0], "a1b2"), ((1,), "xy"), (range(3), "ax1by2")])
def test_output_indexes_choose_what_comes_out(indexes, expected):
    branches = [from_iterable("ab"), from_iterable("xy"), from_iterable("12")]
    assert "".join(Concurrently(branches, output_indexes=indexes)) == expected


def test_a_hidden_branch_keeps_its_weight():
    branches = [from_iterable("ab"), from_iterable(range(6))]
    assert list(Concurrently(branches, output_indexes=[1], round_robin_weights=[1, 3])) == list(range(6))


def test_a_finished_branch_drops_out():
    branches = [from_iterable("a"), from_iterable(""), from_iterable("xyz")]
    assert list(Concurrently(branches, round_robin_weights=[1, 5, 2])) == ["a", "x", "y", "z"]


def test_branches_may_be_concurrent_themselves(engine):
    shards = engine.shards(range(4), range(10, 14))
    inner = Concurrently([shards.get_shard(0), shards.get_shard(1)], mode="async")
    assert sorted(Concurrently([inner, from_iterable([99])], mode="round_robin")) == [0, 1, 2, 3, 10, 11, 12, 13, 99]


def test_an_error_of_a_hidden_branch_reaches_the_consumer():
    def wrong(x):
        raise ValueError("hidden")

    plan = Concurrently([from_iterable([1]).for_each(wrong), from_iterable("ab")], output_indexes=[1])
    with plan.run() as stream:
        with pytest.raises(ValueError, match="hidden"):
            next(stream)
        assert list(stream) == ["a", "b"]


def test_the_plan_is_shown_with_mode_weights_and_outputs():
    text = Concurrently([from_iterable("a"), from_iterable("b")], mode="async", output_indexes=[0], round_robin_weights=[2, "*"]).explain()
    assert "Concurrently" in text and "async" in text and "[0]" in text and "weight 2" in text and "weight *" in text


def test_a_running_plan_shows_what_passed_a_queue():
    shared = Queue(4)
    plan = Concurrently([from_iterable(range(9)).for_each(Enqueue(shared)).filter(never), Dequeue(shared)])
    with plan.run() as stream:
        assert [next(stream) for _ in range(5)] == [0, 1, 2, 3, 4]
        assert "held" in stream.explain() or "in 5" in stream.explain() or "5" in stream.explain()


# --- Enqueue, Dequeue -----------------------------------------------------------------------------------------------


def test_enqueue_is_a_stage_not_a_function():
    with pytest.raises(PlanError, match=r"write \.for_each\(Enqueue\(queue\)\)"):
        Enqueue(Queue(1))("item")


def test_dequeue_gives_the_items_of_the_branch_that_writes():
    shared = Queue(2)
    assert list(Concurrently([from_iterable(range(5)).for_each(Enqueue(shared)), Dequeue(shared)], output_indexes=[1])) == [0, 1, 2, 3, 4]


def test_dequeue_with_a_check_that_stays_true_ends_with_its_writer():
    shared = Queue(2)
    plan = Concurrently([from_iterable(range(5)).for_each(Enqueue(shared)), Dequeue(shared, check=lambda: True)], output_indexes=[1])
    assert list(plan) == [0, 1, 2, 3, 4]


def test_dequeue_whose_check_is_false_says_which_queue():
    shared = queue.Queue(3)
    with Dequeue(shared, check=lambda: False).run() as stream, pytest.raises(QueueClosedError, match=r"queue\.Queue\(.*3\)"):
        next(stream)


def test_a_learner_like_thread_between_two_queues():
    """What a learner does: a thread of the user's reads one queue and writes another, the plan has the other ends."""
    to_learn, learned = queue.Queue(2), queue.Queue(2)

    def learn():
        while (item := to_learn.get()) is not None:
            learned.put(item * 10)

    thread = threading.Thread(target=learn)
    thread.start()
    feed = from_iterable(range(20)).for_each(Enqueue(to_learn)).filter(never)
    plan = Concurrently([feed, Dequeue(learned, check=thread.is_alive)], mode="async", output_indexes=[1])
    assert plan.take(20) == [10 * item for item in range(20)]
    to_learn.put(None)
    thread.join(10)
    assert not thread.is_alive()
