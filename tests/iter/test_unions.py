"""Several branches in one stream: turns, weights, debts, fairness; and what happens when all of them wait for each other."""

from __future__ import annotations

import itertools
import queue
import random
import time
from collections import Counter
from fractions import Fraction

import pytest

from flowrl.errors import DeadlockError
from flowrl.iter import Queue, SerialEngine, from_iterable
from flowrl.iter.ray_engine import RayEngine
from flowrl.iter.run import LOOK_EVERY_S
from flowrl.iter.unions import MAX_OWED_ROUNDS, MAX_STAR_ITEMS
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import never, slowly


def repeat(value):
    return from_iterable(lambda: itertools.repeat(value))


# --- turns ----------------------------------------------------------------------------------------------------------


def test_a_round_robin_takes_one_item_of_each_branch_in_turn():
    assert list(from_iterable("abc").union(from_iterable("xy"), from_iterable("123"), deterministic=True)) == list("ax1by2c3")


def test_a_round_robin_over_shards_waits_for_each_branch_in_its_turn(engine):
    shards = engine.shards(range(5), range(100, 105))
    plan = shards.get_shard(0).union(shards.get_shard(1), deterministic=True)
    assert list(plan) == [0, 100, 1, 101, 2, 102, 3, 103, 4, 104]


def test_a_round_robin_waits_for_a_slow_branch(on_ray):
    shards = on_ray.shards(slowly(range(4), 0.05))
    assert list(from_iterable("abcd").union(shards.gather_async(), deterministic=True)) == ["a", 0, "b", 1, "c", 2, "d", 3]


@pytest.mark.parametrize(
    "options", [{}, {"deterministic": True}, {"round_robin_weights": [2, 1, 1, 1]}, {"round_robin_weights": ["*", 1, 2, 1]}]
)
def test_uneven_branches_are_all_used_up(engine, options):
    """A9: 0, 1, 7 and 100 items; a finished branch drops out, the others go on."""
    shards = engine.shards([], [1000], range(2000, 2007), range(100))
    branches = [shards.get_shard(i) for i in range(4)]
    assert sorted(branches[0].union(*branches[1:], **options)) == [*range(100), 1000, *range(2000, 2007)]


def test_nested_unions_give_every_item_once(engine):
    shards = engine.shards([], [1000], range(2000, 2007), range(100))
    none, one, seven, hundred = (shards.get_shard(i) for i in range(4))
    plan = none.union(one).union(seven.union(hundred, deterministic=True), round_robin_weights=[1, 3])
    assert sorted(plan) == [*range(100), 1000, *range(2000, 2007)]


def test_the_union_of_one_is_the_branch():
    assert list(from_iterable("abc").union()) == ["a", "b", "c"]


def test_an_async_union_does_not_wait_for_a_slow_branch(on_ray):
    shards = on_ray.shards(slowly(["slow"], 0.4), range(30))
    items = list(shards.get_shard(0).union(shards.get_shard(1)))
    assert items.index("slow") > 15
    assert len(items) == 31


def test_a_union_left_by_break_goes_on_where_it_was(engine):
    shards = engine.shards(range(20), range(100, 120))
    plan = shards.get_shard(0).union(shards.get_shard(1), from_iterable(range(200, 220)), round_robin_weights=[1, "*", Fraction(1, 2)])
    items = []
    with plan.run() as stream:
        for stop_at in (3, 7, 4):
            for item in stream:
                items.append(item)
                if len(items) % stop_at == 0:
                    break
        items += stream
    assert sorted(items) == [*range(20), *range(100, 120), *range(200, 220)]


# --- weights --------------------------------------------------------------------------------------------------------


def test_a_whole_weight_is_how_many_items_a_branch_gives_a_turn():
    plan = Concurrently([repeat("a"), repeat("b"), repeat("c")], round_robin_weights=[1, 3, 2])
    assert plan.take(12) == list("abbbcc" * 2)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(
    ("weights", "period", "expected"),
    [
        ([1, 0.5], 3, {"a": 2, "b": 1}),
        ([0.25, 1], 5, {"a": 1, "b": 4}),
        ([Fraction(2, 3), 1], 5, {"a": 2, "b": 3}),
        ([1.5, 1], 5, {"a": 3, "b": 2}),
        ([0.1, 0.3], 4, {"a": 1, "b": 3}),
        ([Fraction(1, 7), Fraction(1, 5)], 12, {"a": 5, "b": 7}),
    ],
)
def test_a_fractional_weight_is_exact_in_the_long_run(weights, period, expected, deterministic):
    plan = repeat("a").union(repeat("b"), deterministic=deterministic, round_robin_weights=weights)
    num_periods = 100
    counts = Counter(plan.take(period * num_periods))
    for name, share in expected.items():
        assert abs(counts[name] - share * num_periods) <= 2


def test_a_fractional_weight_never_strays_by_more_than_an_item_and_a_turn():
    given = {"a": 0, "b": 0}
    for item in repeat("a").union(repeat("b"), deterministic=True, round_robin_weights=[1, 0.4]).take(1400):
        given[item] += 1
        assert abs(given["b"] - 0.4 * given["a"]) < 1.0 + 0.4


def test_a_tiny_weight_is_exact_too():
    counts = Counter(repeat("a").union(repeat("b"), round_robin_weights=[1, 0.001]).take(10_010))
    assert counts == {"a": 10_000, "b": 10}


def test_a_branch_of_little_weight_goes_on_while_the_others_wait():
    """As one of weight 1 beside one of weight 100 does: turns are owed, never waited for while another can run."""
    gate = Gate()
    with gate.branch().union(repeat("a"), round_robin_weights=[1, 0.01]).run() as stream:
        assert [next(stream) for _ in range(50)] == ["a"] * 50


def test_a_star_branch_gives_all_that_is_ready_at_most_100_a_turn():
    plan = repeat("a").union(repeat("b"), deterministic=True, round_robin_weights=[1, "*"])
    assert plan.take(3 * 101) == (["a"] + ["b"] * MAX_STAR_ITEMS) * 3


def test_a_star_branch_is_never_waited_for(on_ray):
    shards = on_ray.shards(slowly(["slow"], 0.5))
    items = Concurrently([from_iterable("abcdef"), shards.gather_async()], round_robin_weights=[1, "*"])
    assert list(items) == ["a", "b", "c", "d", "e", "f", "slow"]


# --- debts ----------------------------------------------------------------------------------------------------------


class Gate:
    """A user's source of a branch: whether it has an item is up to the test."""

    def __init__(self):
        self.items = queue.Queue(1000)

    def branch(self):
        return Dequeue(self.items)


@pytest.mark.parametrize("weight", [1, 3])
def test_turns_of_a_branch_that_is_not_ready_are_owed_but_at_most_4_rounds(weight):
    gate = Gate()
    with repeat("a").union(gate.branch(), round_robin_weights=[1, weight]).run() as stream:
        assert [next(stream) for _ in range(50)] == ["a"] * 50
        for _ in range(200):
            gate.items.put("b")
        items = [next(stream) for _ in range(100)]
    runs = [len(list(group)) for item, group in itertools.groupby(items) if item == "b"]
    assert runs[0] == weight * (1 + MAX_OWED_ROUNDS)
    assert set(runs[1:-1]) == {weight}


def test_a_branch_that_only_another_branch_can_make_ready_is_owed_its_turns(engine):
    """A13: the round robin of a writer and a reader that is empty at first starts, and in the long run the ratio holds."""
    shared = Queue(100)
    write = engine.shards(range(400)).gather_async().combine(lambda x: [x, x, x, x]).for_each(Enqueue(shared)).filter(never)
    plan = Concurrently([write, Dequeue(shared)], mode="round_robin", round_robin_weights=[1, 4])
    assert sorted(plan) == sorted([*range(400)] * 4)


@pytest.mark.parametrize("weights", [[1, 4], ["*", 1], [1, "*"], ["*", "*"], [Fraction(1, 3), 2]])
@pytest.mark.parametrize("mode", ["round_robin", "async"])
def test_a_reader_that_needs_a_thousand_rows_first_does_not_lock_the_plan(engine, mode, weights):
    """A13 with queues: nothing comes of the reading branch until the writing one has run long enough."""
    shared = Queue(16)
    write = engine.shards(range(3000)).gather_async(batch_ms=5).for_each(Enqueue(shared))
    read = Dequeue(shared).batch(1000)
    plan = Concurrently([write, read], mode=mode, output_indexes=[1], round_robin_weights=weights)
    assert [len(batch) for batch in plan] == [1000, 1000, 1000]


def test_two_readers_that_are_not_ready_do_not_lock_the_plan(engine):
    first, second = Queue(4), Queue(4)
    write = engine.shards(range(200)).gather_async().for_each(Enqueue(first)).for_each(Enqueue(second))
    plan = Concurrently([write, Dequeue(first).batch(50), Dequeue(second).batch(70)], output_indexes=[1, 2], round_robin_weights=[1, 4, 4])
    assert sorted(len(batch) for batch in plan) == [50, 50, 50, 50, 60, 70, 70]


@pytest.mark.parametrize("mode", ["round_robin", "async"])
def test_branches_that_move_items_and_give_none_are_no_deadlock(mode):
    """Each turn both make room or an item for the other, and neither has one for the consumer until the end."""
    shared = Queue(2)
    write = from_iterable(range(500)).for_each(Enqueue(shared)).filter(never)
    assert list(Concurrently([write, Dequeue(shared).batch(500)], mode=mode)) == [list(range(500))]


def test_a_branch_that_another_has_made_ready_is_not_left_asleep_with_the_rest(on_ray):
    """The reader makes room for the writer in the same round in which a slow shard is waited for."""
    shared = Queue(2)
    write = from_iterable(range(100)).for_each(Enqueue(shared)).filter(never)
    slow = on_ray.shards(slowly(["slow"], 1.0)).gather_async()
    plan = Concurrently([write, Dequeue(shared).batch(100).for_each(len), slow], mode="async")
    assert list(plan) == [100, "slow"]


def test_a_full_queue_whose_reader_is_the_other_branch_does_not_lock_the_plan(engine):
    """F3: an Enqueue into a full queue whose consumer is the other branch."""
    shared = Queue(1)
    write = engine.shards(range(50)).gather_async(num_async=2).for_each(Enqueue(shared))
    plan = Concurrently([write, Dequeue(shared)], mode="round_robin", output_indexes=[1], round_robin_weights=[5, 1])
    assert list(plan) == list(range(50))


def test_a_deadlock_is_an_error_that_names_the_branches():
    """Each branch writes the queue that the other one reads, and begins by reading."""
    left, right = Queue(1), Queue(1)
    plan = Concurrently([Dequeue(left).for_each(Enqueue(right)), Dequeue(right).for_each(Enqueue(left))], mode="async")
    with plan.run() as stream, pytest.raises(DeadlockError) as caught:
        next(stream)
    message = str(caught.value)
    assert message.count("Dequeue(Queue(maxsize=1)) at test_unions.py:") == 2
    assert "waits for an item in Queue(maxsize=1)" in message


def test_a_deadlock_inside_one_branch_is_found_too():
    """A branch that reads what it alone would write, later."""
    shared = Queue(4)
    plan = Dequeue(shared).for_each(Enqueue(shared))
    with plan.run() as stream, pytest.raises(DeadlockError, match="waits for an item"):
        next(stream)


def test_a_pending_call_elsewhere_is_no_deadlock(on_ray):
    shared = Queue(1)
    write = on_ray.shards(slowly(range(3), 0.2)).gather_async().for_each(Enqueue(shared)).filter(never)
    assert list(write.union(Dequeue(shared), deterministic=True)) == [0, 1, 2]


# --- fair (C5) ------------------------------------------------------------------------------------------------------


def test_a_gather_is_served_beside_a_branch_that_is_always_ready(engine):
    shards = engine.shards(*[lambda: itertools.repeat("shard")] * 2)
    with repeat("local").union(shards.gather_async()).run() as stream:
        since, longest, num_shard = 0, 0, 0
        while num_shard < 100:
            if next(stream) == "shard":
                num_shard, longest, since = num_shard + 1, max(longest, since), 0
            else:
                since += 1
                assert since < 100_000, "the gather starves"
    if engine.name == "serial":
        assert longest <= 2


def test_pending_calls_are_looked_at_at_most_each_half_millisecond(on_ray):
    """A look costs 90 us, an item of a local branch 0.3: the branch that is always ready does not pay for one each time."""
    looks = []

    class Counting(RayEngine):
        def wait(self, calls, timeout_s=None, num=1):
            looks.append(timeout_s)
            return super().wait(calls, timeout_s, num)

    shards = on_ray.shards(slowly(range(3), 1.0))
    with repeat("local").union(shards.gather_async()).run(engine=Counting()) as stream:
        began = time.perf_counter()
        for _ in range(50_000):
            next(stream)
        took = time.perf_counter() - began
    assert looks.count(None) == 0, "it never sleeps"
    assert 2 <= looks.count(0) <= took / LOOK_EVERY_S + 2


@pytest.mark.parametrize("mode", ["async", "nested"])
def test_a_branch_that_drops_everything_does_not_starve_the_other(mode):
    dropping = from_iterable(itertools.count).filter(never)
    if mode == "nested":
        dropping = dropping.for_each(lambda x: x).union(from_iterable(itertools.count).combine(lambda x: []))
    assert dropping.union(from_iterable(range(5))).take(5) == [0, 1, 2, 3, 4]


def test_a_branch_whose_output_is_hidden_does_not_starve_the_other():
    plan = Concurrently([repeat("hidden"), from_iterable(range(5))], mode="async", output_indexes=[1], round_robin_weights=["*", 1])
    assert plan.take(5) == [0, 1, 2, 3, 4]


def test_a_gather_whose_items_are_all_dropped_does_not_starve_a_local_branch(engine):
    shards = engine.shards(*[lambda: itertools.repeat("shard")] * 2)
    assert shards.gather_async().filter(never).union(from_iterable(range(50))).take(50) == list(range(50))


def test_pending_branches_are_served_in_turn(engine):
    """Three gathers that are always busy: none falls behind by more than some turns."""
    shards = engine.shards(*[lambda i=i: itertools.repeat(i) for i in range(3)])
    counts = Counter()
    with shards.get_shard(0).union(shards.get_shard(1), shards.get_shard(2)).run() as stream:
        for _ in range(300):
            counts[next(stream)] += 1
            if engine.name == "ray":
                time.sleep(0.004)  # a consumer so slow that all three are ready again
    assert all(60 <= counts[branch] <= 140 for branch in range(3)), counts


# --- the same each time (C12) ---------------------------------------------------------------------------------------


def test_the_serial_engine_repeats_an_async_union_for_the_same_seed(serial):
    shards = serial.shards(range(10), range(100, 110), range(200, 210))
    plan = shards.gather_async(num_async=2).union(shards_copy(serial), round_robin_weights=[1, "*"])
    streams = [list(plan.run(engine=SerialEngine(seed=3))) for _ in range(2)]
    assert streams[0] == streams[1]
    others = [list(plan.run(engine=SerialEngine(seed=seed))) for seed in range(4, 9)]
    assert any(other != streams[0] for other in others), "another seed is another interleaving"


def shards_copy(serial):
    return from_iterable(range(300, 310))


def test_any_fair_interleaving_is_reached_by_some_seed(serial):
    plan = serial.shards("a", "b", "c").gather_async()
    orders = {"".join(plan.run(engine=SerialEngine(seed=seed))) for seed in range(60)}
    assert orders == {"".join(order) for order in itertools.permutations("abc")}


def test_a_random_tree_of_unions_loses_nothing():
    rng = random.Random(5)
    for _ in range(30):
        plan, expected = from_iterable([0]), [0]
        for start in range(1, rng.randrange(2, 6)):
            items = [100 * start + i for i in range(rng.randrange(12))]
            weights = rng.choice([None, [rng.choice([1, 2, 0.5, "*"]), rng.choice([1, 0.3, "*"])]])
            plan = plan.union(from_iterable(items), deterministic=rng.random() < 0.5, round_robin_weights=weights)
            expected += items
        assert sorted(plan) == sorted(expected)


@pytest.mark.parametrize("weights", [[1, 40, "*"], [1, 40, 40], [3, 7, "*"]])
def test_who_fills_a_small_queue_gets_its_turns_within_the_round(engine, weights):
    """Debts stay below the four rounds beyond which they are forgiven."""
    q = Queue(4)
    fill = repeat("fill").for_each(Enqueue(q))
    plan = Concurrently([repeat("one"), fill, Dequeue(q)], mode="round_robin", round_robin_weights=weights, output_indexes=[0, 1])
    with plan.run() as stream:
        seen = Counter(next(stream) for _ in range(50 * sum(weights[:2])))
    assert seen["fill"] / seen["one"] == pytest.approx(weights[1] / weights[0], rel=0.03)
