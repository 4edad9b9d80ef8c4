"""What is wrong with a plan is said before anything starts, with the operator and the plan's line; and good plans pass."""

from __future__ import annotations

import queue
import re
import threading

import pytest

from flowrl.errors import PlanError
from flowrl.iter import ActorHandle, Handle, Queue, create_colocated, from_actors, from_items, from_iterable, from_iterators, from_range
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import Source


def alarm(*_):
    raise AssertionError("something was started")


class Bomb(Handle):
    """A handle that must not be opened."""

    start_live = alarm


class Uses:
    """An operator that names a handle."""

    __call__ = alarm

    def __init__(self):
        self.handle = Bomb()


def shards():
    """Shards that must not be started."""
    return from_iterators([alarm, alarm])


def stream():
    """A stream that must not be started, with a handle that must not be opened."""
    return shards().gather_async().for_each(Uses())


def fed(shared):
    return stream().for_each(Enqueue(shared))


# --- wrong in a way that is known when the whole plan is: refused by check(), draw() and run() ----------------------
# Each: a plan, the operators that the message names, what it says.


def never_leaves_its_shards():
    return shards().for_each(alarm)


def never_leaves_its_shards_after_a_repartition():
    return shards().repartition(2)


def one_stage_two_consumers():
    plan = stream()
    return plan.for_each(alarm).union(plan.filter(alarm))


def one_stream_twice_in_a_union():
    plan = stream()
    return plan.union(plan)


def one_gather_twice_in_concurrently():
    plan = shards().gather_async()
    return Concurrently([plan, plan], mode="async")


def one_local_source_two_consumers():
    plan = from_iterable(alarm)
    return plan.batch(2).union(plan)


def one_dequeue_two_consumers():
    shared = Queue(1)
    read = Dequeue(shared)
    return Concurrently([fed(shared), read.for_each(alarm), read])


def shards_read_by_two_gathers():
    plan = shards()
    return plan.gather_sync().union(plan.gather_async())


def one_shard_read_twice():
    plan = shards().for_each(alarm)
    return plan.get_shard(1).union(plan.select_shards([0, 1]).gather_sync())


def shards_read_by_a_gather_and_a_repartition():
    plan = shards()
    return plan.repartition(3).gather_sync().union(plan.gather_sync())


def a_shard_twice_in_a_union_of_shards():
    plan = shards()
    return plan.union(plan.select_shards([0])).gather_sync()


def partitions_read_twice():
    plan = shards().repartition(2)
    return plan.get_shard(0).union(plan.for_each(alarm).get_shard(0))


def actors_read_by_two_plans():
    plan = from_actors([ActorHandle(Source)])
    return plan.gather_sync().union(plan.for_each(alarm).gather_async())


def a_child_consumed_twice():
    first, _ = stream().duplicate(2)
    return first.union(first)


def a_child_consumed_by_two_stages():
    first, second = stream().duplicate(2)
    return Concurrently([first.for_each(alarm), first.filter(alarm), second])


def a_child_of_a_child_consumed_twice():
    first, second = stream().duplicate(2)
    inner, _ = first.duplicate(2)
    return inner.union(second, inner.for_each(alarm))


def a_duplicated_stream_read_beside_its_children():
    plan = stream()
    first, _ = plan.duplicate(2)
    return first.union(plan)


def an_unbounded_queue_written():
    return stream().for_each(Enqueue(queue.Queue()))


def an_unbounded_queue_read():
    return Dequeue(queue.Queue(0))


def an_unbounded_queue_between_branches():
    shared = queue.LifoQueue()
    return Concurrently([fed(shared), Dequeue(shared)])


def a_queue_written_never_read():
    return fed(Queue(2)).union(from_iterable(alarm))


def a_queue_read_never_written():
    return Dequeue(Queue(2)).union(stream())


def one_of_two_queues_never_read():
    shared, other = Queue(1), Queue(1)
    return Concurrently([fed(shared).for_each(Enqueue(other)), Dequeue(shared)])


def a_queue_read_by_a_branch_that_is_not_in_the_plan():
    shared = Queue(1)
    Dequeue(shared)
    return fed(shared)


BROKEN = {
    never_leaves_its_shards: (["for_each"], "never leave their shards"),
    never_leaves_its_shards_after_a_repartition: (["repartition"], "never leave their shards"),
    one_stage_two_consumers: (["Uses", "for_each", "filter"], "duplicate"),
    one_stream_twice_in_a_union: (["Uses"], "duplicate"),
    one_gather_twice_in_concurrently: (["gather_async", "Concurrently"], "duplicate"),
    one_local_source_two_consumers: (["from_iterable", "batch", "union"], "duplicate"),
    one_dequeue_two_consumers: (["Dequeue"], "duplicate"),
    shards_read_by_two_gathers: (["from_iterators", "gather_sync", "gather_async"], "feeds two consumers"),
    one_shard_read_twice: (["shard 1 of from_iterators", "get_shard"], "feeds two consumers"),
    shards_read_by_a_gather_and_a_repartition: (["from_iterators", "repartition"], "feeds two consumers"),
    a_shard_twice_in_a_union_of_shards: (["shard 0 of from_iterators", "gather_sync"], "feeds two consumers"),
    partitions_read_twice: (["repartition", "get_shard"], "feeds two consumers"),
    actors_read_by_two_plans: (["from_actors"], "feeds two consumers"),
    a_child_consumed_twice: (["child 0 of duplicate"], "consumed twice"),
    a_child_consumed_by_two_stages: (["child 0 of duplicate", "for_each", "filter"], "consumed twice"),
    a_child_of_a_child_consumed_twice: (["child 0 of duplicate"], "consumed twice"),
    a_duplicated_stream_read_beside_its_children: (["Uses", "duplicate", "union"], "duplicate"),
    an_unbounded_queue_written: (["Enqueue"], "without a bound"),
    an_unbounded_queue_read: (["Dequeue"], "without a bound"),
    an_unbounded_queue_between_branches: (["Enqueue"], "without a bound"),
    a_queue_written_never_read: (["Enqueue"], "nothing in the plan reads it"),
    a_queue_read_never_written: (["Dequeue"], "nothing in the plan writes it"),
    one_of_two_queues_never_read: (["Enqueue"], "nothing in the plan reads it"),
    a_queue_read_by_a_branch_that_is_not_in_the_plan: (["Enqueue"], "nothing in the plan reads it"),
}


def lines_of(fn):
    code = fn.__code__
    return range(code.co_firstlineno, max(line for _, _, line in code.co_lines() if line) + 1)


HELPERS = [line for fn in (alarm, shards, stream, fed) for line in lines_of(fn)]


@pytest.mark.parametrize("ask", ["check", "draw", "run", "iterate", "next", "take"])
@pytest.mark.parametrize("broken", BROKEN, ids=lambda fn: fn.__name__)
def test_a_broken_plan_is_refused_before_anything_starts(broken, ask, tmp_path):
    plan = broken()
    asks = {
        "check": lambda: plan.check(),
        "draw": lambda: plan.draw(tmp_path / "plan.svg"),
        "run": lambda: plan.run(),
        "iterate": lambda: list(plan),
        "next": lambda: next(plan),
        "take": lambda: plan.take(1),
    }
    if not hasattr(plan, "__next__") and ask not in ("check", "draw", "run"):
        ask = "run"  # items that are still in their shards cannot be iterated; `take` gathers them itself
    threads = set(threading.enumerate())
    with pytest.raises(PlanError) as caught:
        asks[ask]()
    assert set(threading.enumerate()) == threads
    assert not (tmp_path / "plan.svg").exists()
    operators, says = BROKEN[broken]
    message = str(caught.value)
    assert says in message
    for operator in operators:
        assert operator in message, message
    named = [int(line) for line in re.findall(r"test_broken_plans\.py:(\d+)", message)]
    assert named and all(line in [*lines_of(broken), *HELPERS] for line in named)
    assert not re.search(r"(iterators|passes|nodes|concurrency|building|constructors)\.py", message)


# --- wrong in one operator: refused when it is built ----------------------------------------------------------------


class Merges:
    """An operator that makes one item of several."""

    merges_items = True

    def __call__(self, x):
        return [x]


REFUSED = {
    "the source of a batch": (lambda: stream().batch(2).zip_with_source_actor(), ["zip_with_source_actor", "batch"]),
    "the source of a repartition": (lambda: shards().repartition(2).gather_sync().zip_with_source_actor(), ["repartition"]),
    "the source of a local stream": (lambda: from_iterable(alarm).zip_with_source_actors(), ["zip_with_source_actors", "from_iterable"]),
    "the source of merged items": (lambda: stream().combine(Merges()).zip_with_source_actor(), ["combine"]),
    "an output that is not there": (lambda: Concurrently([stream()], output_indexes=[1]), ["Concurrently", "[1]", "0 to 0"]),
    "an output twice": (lambda: Concurrently([stream(), stream()], output_indexes=[0, 0]), ["Concurrently", "each once"]),
    "no output": (lambda: Concurrently([stream()], output_indexes=[]), ["Concurrently", "at least one"]),
    "a negative output": (lambda: Concurrently([stream(), stream()], output_indexes=[-1]), ["Concurrently"]),
    "an output that is no number": (lambda: Concurrently([stream(), stream()], output_indexes=[True, "1"]), ["Concurrently"]),
    "Concurrently of nothing": (lambda: Concurrently([]), ["Concurrently", "no branches"]),
    "an unknown mode": (lambda: Concurrently([stream()], mode="fast"), ["Concurrently", "'round_robin' or 'async'"]),
    "a branch still in its shards": (lambda: Concurrently([stream(), shards()]), ["Concurrently", "gather it first"]),
    "a branch that is no plan": (lambda: Concurrently([[1, 2]]), ["Concurrently", "[1, 2]"]),
    "a union with shards": (lambda: stream().union(shards()), ["union", "gather it first"]),
    "a union of shards with a stream": (lambda: shards().union(stream()), ["union"]),
    "too few weights": (lambda: Concurrently([stream(), stream()], round_robin_weights=[1]), ["1 weights for 2 branches"]),
    "too many weights": (lambda: stream().union(stream(), round_robin_weights=[1, 2, 3]), ["union", "3 weights for 2 branches"]),
    "a weight of 0": (lambda: stream().union(stream(), round_robin_weights=[0, 1]), ["union", "above 0"]),
    "a negative weight": (lambda: stream().union(stream(), round_robin_weights=[1, -1]), ["union", "above 0"]),
    "a weight that is no number": (lambda: stream().union(stream(), round_robin_weights=[1, "?"]), ["union", "'?'"]),
    "an infinite weight": (lambda: stream().union(stream(), round_robin_weights=[1, float("inf")]), ["union", "inf"]),
    "a weight too small": (lambda: stream().union(stream(), round_robin_weights=[1, 1e-9]), ["union", "too small"]),
    "weights that are no list": (lambda: stream().union(stream(), round_robin_weights="11"), ["union", "pass a list"]),
    "a one-shot iterator": (lambda: from_iterable(iter([1])), ["from_iterable", "read only once"]),
    "a generator object as a shard": (lambda: from_iterators([(x for x in [1])]), ["from_iterators", "read only once"]),
    "one-shot items": (lambda: from_items(map(str, [1])), ["from_items", "read only once"]),
    "no shards": (lambda: from_range(3, num_shards=0), ["from_range", "num_shards=0"]),
    "no iterators": (lambda: from_iterators([]), ["from_iterators", "at least one"]),
    "no actors": (lambda: from_actors([]), ["from_actors", "at least one"]),
    "an actor that is no source": (lambda: from_actors(create_colocated(dict, [], 1)), ["from_actors", "ParallelIteratorWorker"]),
    "an unbounded fl.Queue": (lambda: Queue(0), ["Queue(maxsize=0)", "no bound"]),
    "an Enqueue into no queue": (lambda: Enqueue([]), ["Enqueue", "fl.Queue"]),
    "a Dequeue of no queue": (lambda: Dequeue(queue.SimpleQueue()), ["Dequeue", "fl.Queue"]),
    "an Enqueue in a shard": (lambda: shards().for_each(Enqueue(Queue(1))), ["for_each", "after a gather"]),
    "an Enqueue in a combine": (lambda: stream().combine(Enqueue(Queue(1))), ["Enqueue"]),
    "a check that cannot be called": (lambda: Dequeue(Queue(1), check=True), ["Dequeue", "check"]),
    "a stage that cannot be called": (lambda: stream().for_each(3), ["for_each", "3"]),
    "a filter that cannot be called": (lambda: shards().filter(None), ["filter", "None"]),
    "a batch of 0": (lambda: stream().batch(0), ["batch", "n=0"]),
    "a shuffle of 0": (lambda: shards().local_shuffle(0), ["local_shuffle", "shuffle_buffer_size=0"]),
    "num_async of 0": (lambda: shards().gather_async(num_async=0), ["gather_async", "num_async=0"]),
    "a negative batch_ms": (lambda: shards().gather_async(batch_ms=-1), ["gather_async", "batch_ms=-1"]),
    "max_concurrency of 0": (lambda: shards().for_each(alarm, max_concurrency=0), ["for_each", "max_concurrency=0"]),
    "resources without concurrency": (lambda: shards().for_each(alarm, resources={"num_cpus": 1}), ["for_each", "max_concurrency"]),
    "a shard that is not there": (lambda: shards().get_shard(2), ["get_shard", "0 to 1"]),
    "no partitions": (lambda: shards().repartition(0), ["repartition", "num_partitions=0"]),
    "a duplicate of one": (lambda: stream().duplicate(1), ["duplicate", "n=1"]),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_is_wrong_in_one_operator_is_refused_when_it_is_built(refused):
    build, says = REFUSED[refused]
    with pytest.raises(PlanError) as caught:
        build()
    message = str(caught.value)
    for text in says:
        assert text in message, message
    if refused != "an unbounded fl.Queue":
        assert f"test_broken_plans.py:{build.__code__.co_firstlineno}" in message
    assert not re.search(r"(iterators|passes|nodes|concurrency|building|constructors)\.py", message)


# --- no false alarm -------------------------------------------------------------------------------------------------


def a_bounded_queue_with_its_reader_in_a_thread():
    return from_iterable([1]).for_each(Enqueue(queue.Queue(4))), [1]


def a_bounded_queue_with_its_writer_in_a_thread():
    shared = queue.Queue(4)
    threading.Thread(target=lambda: [shared.put(item) for item in (1, 2)]).start()
    return Dequeue(shared), [1, 2]


def disjoint_shards_in_two_branches():
    plan = from_range(4, 2)
    return plan.select_shards([0]).gather_sync().union(plan.select_shards([1]).gather_async()), [0, 1, 2, 3]


def all_shards_united():
    plan = from_range(6, 3).for_each(lambda x: x)
    first, *others = plan.shards()
    return first.union(*others), [0, 1, 2, 3, 4, 5]


def partitions_read_apart():
    plan = from_range(40, 2).repartition(2)
    return plan.get_shard(0).union(plan.get_shard(1)), list(range(40))


def an_unreached_child():
    return from_iterable([1, 2]).duplicate(3)[1], [1, 2]


def children_of_children():
    first, second = from_iterable([1]).duplicate(2)
    inner, other = first.duplicate(2)
    return inner.union(other, second), [1, 1, 1]


def two_plans_over_one_source():
    plan = from_range(4, 2)
    plan.gather_async()
    plan.for_each(str).gather_sync()
    return plan.gather_sync(), [0, 1, 2, 3]


def two_queues_in_a_chain():
    first, second = Queue(1), Queue(1)
    branches = [from_iterable([1, 2]).for_each(Enqueue(first)), Dequeue(first).for_each(Enqueue(second)), Dequeue(second)]
    return Concurrently(branches, output_indexes=[2]), [1, 2]


def two_writers_one_reader():
    shared = Queue(1)
    branches = [from_iterable([1]).for_each(Enqueue(shared)), from_iterable([2]).for_each(Enqueue(shared)), Dequeue(shared)]
    return Concurrently(branches, output_indexes=[2]), [1, 2]


def one_function_in_two_stages():
    fn = abs
    return from_iterable([-1]).for_each(fn).union(from_iterable([-2]).for_each(fn)), [1, 2]


def one_list_in_two_sources():
    items = [1, 2]
    return from_iterable(items).union(from_iterable(items)), [1, 1, 2, 2]


def a_union_of_shards_of_different_sources():
    return from_range(2, 1).union(from_items([7], 1)).gather_sync(), [0, 1, 7]


def weights_of_every_kind():
    branches = [from_iterable([i]) for i in range(4)]
    return Concurrently(branches, round_robin_weights=[1, 0.5, "*", 3]), [0, 1, 2, 3]


def one_branch():
    return Concurrently([from_iterable([1])], mode="async", output_indexes=[0]), [1]


def a_source_kept_through_everything():
    plan = from_range(2, 1).gather_async().for_each(lambda x: x).shuffle(2).filter(lambda x: True).combine(lambda x: [x])
    return plan.zip_with_source_actor().for_each(lambda pair: pair[1]), [0, 1]


GOOD = [
    a_bounded_queue_with_its_reader_in_a_thread,
    a_bounded_queue_with_its_writer_in_a_thread,
    disjoint_shards_in_two_branches,
    all_shards_united,
    partitions_read_apart,
    an_unreached_child,
    children_of_children,
    two_plans_over_one_source,
    two_queues_in_a_chain,
    two_writers_one_reader,
    one_function_in_two_stages,
    one_list_in_two_sources,
    a_union_of_shards_of_different_sources,
    weights_of_every_kind,
    one_branch,
    a_source_kept_through_everything,
]


@pytest.mark.parametrize("good", GOOD, ids=lambda fn: fn.__name__)
def test_a_good_plan_passes_and_runs(serial, good, tmp_path):
    plan, expected = good()
    plan.check()
    plan.draw(tmp_path / "plan.mmd")
    assert sorted(plan.take(len(expected))) == expected


def test_there_are_at_least_15_broken_plans():
    assert len(BROKEN) >= 15
