import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.batch import Origin, SampleBatch
from flowrl.env import EnvVector
from flowrl.replay import PrioritizedReplayBuffer, ReplayBuffer
from flowrl.rollout.sampler import Sampler
from tests.envs import CountEnv

REFUSED = [0.0, -1.0, np.nan, np.inf, 1e308]


@pytest.fixture(params=[ReplayBuffer, PrioritizedReplayBuffer])
def kind(request):
    return request.param


def rows(count: int, start: int = 0) -> SampleBatch:
    return SampleBatch({"number": np.arange(start, start + count)})


def prioritized(priorities, capacity: int = 100, **settings) -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(capacity, **{"alpha": 1.0, "beta": 0.5} | settings)
    buffer.add(rows(len(priorities)), np.array(priorities, np.float64))
    return buffer


def counts(buffer, num_rows: int) -> list[int]:
    return np.bincount(buffer.sample(num_rows)["number"], minlength=buffer.num_added).tolist()


def priorities_of(buffer: PrioritizedReplayBuffer) -> dict[int, float]:
    """As they show from outside: with alpha and beta 1, weight = smallest priority / priority."""
    batch = buffer.sample(5000)
    return {int(number): float(weight) for number, weight in zip(batch["number"], batch["weights"])}


class Plain:
    """Takes action 0 for ever and adds nothing."""

    def act(self, obs, explore):
        return np.zeros(len(obs), np.int64), {}

    def postprocess(self, fragment):
        return fragment


def test_one_row_is_enough_for_any_sample(kind):  # E3, E7
    buffer = kind(100)
    buffer.add(rows(1))
    assert counts(buffer, 10) == [10]


def test_two_rows_that_are_alike_are_drawn_alike(kind):  # E3
    buffer = kind(100)
    buffer.add(rows(2))
    assert counts(buffer, 2000) == pytest.approx([1000, 1000], abs=90)


def test_batch_indexes_number_the_rows_in_order_of_adding(kind):
    buffer = kind(7)
    for start in range(0, 25, 5):
        buffer.add(rows(5, start))
    batch = buffer.sample(200)
    assert batch["batch_indexes"].dtype == np.int64
    assert batch["batch_indexes"].tolist() == batch["number"].tolist()
    assert set(batch["number"].tolist()) == set(range(18, 25))


def test_a_sample_is_a_batch_of_its_own_without_an_origin(kind):  # A12, C15, C17
    buffer = kind(4)
    buffer.add(SampleBatch({"number": np.arange(4)}, origin=Origin(1, 0, 0)))
    batch = buffer.sample(8)
    before = batch["number"].tolist()
    buffer.add(rows(4, 4))
    assert batch.origin is None
    assert batch["number"].tolist() == before
    assert all(column.flags.owndata and not column.flags.writeable for _, column in batch.items())


def test_rows_keep_their_dtypes(kind):  # K9
    columns = {
        "obs": np.array([16777217.0]),
        "actions": np.array([0.1], np.float64),
        "image": np.full((1, 2, 2), 255, np.uint8),
        "done": np.array([True]),
    }
    buffer = kind(3)
    buffer.add(SampleBatch(columns))
    batch = buffer.sample(1)
    assert {name: batch[name].dtype for name in columns} == {name: column.dtype for name, column in columns.items()}
    assert all(np.array_equal(batch[name], column) for name, column in columns.items())


def test_a_row_at_a_time_limit_keeps_its_own_last_observation(kind):  # C6
    sampler = Sampler(EnvVector([CountEnv(3, "trunc")], np.random.SeedSequence(0)), Plain(), 5)
    buffer = kind(7)
    for _ in range(5):
        buffer.add(sampler.sample())
        batch = buffer.sample(100)
        at_limit = np.flatnonzero(batch["t"] == 2)
        assert len(at_limit)
        assert set(batch["new_obs"][at_limit, 2].tolist()) == {3.0}
        assert not batch["terminateds"].any()
        assert batch["truncateds"][at_limit].all()


def test_the_same_seed_and_adds_give_the_same_samples(kind):  # L2
    first, second, other = kind(50, seed=3), kind(50, seed=np.random.SeedSequence(3)), kind(50, seed=4)
    for buffer in (first, second, other):
        buffer.add(rows(20))
    drawn = [[buffer.sample(16)["number"].tolist() for _ in range(3)] for buffer in (first, second, other)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda buffer: pickle.loads(pickle.dumps(buffer))], ids=["deepcopy", "pickle"])
def test_a_copy_goes_on_as_the_buffer_does(kind, copied):  # I3
    buffer = kind(30)
    buffer.add(rows(40))
    if isinstance(buffer, PrioritizedReplayBuffer):
        buffer.update_priorities(np.arange(10, 40), np.arange(1.0, 31.0))
    twin = copied(buffer)
    for both in (buffer, twin):
        both.add(rows(5, 40))
        if isinstance(both, PrioritizedReplayBuffer):
            both.update_priorities(np.array([20, 44]), np.array([500.0, 0.25]))
    ours, theirs = buffer.sample(64), twin.sample(64)
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert buffer.stats() == twin.stats()


def test_an_empty_buffer_says_that_it_is_empty(kind):
    with pytest.raises(ValueError, match="empty buffer: add rows first"):
        kind(10).sample(4)


def test_a_sample_of_no_rows_is_refused(kind):
    buffer = kind(10)
    buffer.add(rows(1))
    with pytest.raises(ValueError, match="sample of 0 rows"):
        buffer.sample(0)


def test_a_batch_that_was_replayed_is_refused(kind):
    buffer = kind(10)
    buffer.add(rows(3))
    with pytest.raises(ValueError, match=r"batch_indexes.*which a sample from this buffer gets on top"):
        buffer.add(buffer.sample(2))
    assert len(buffer) == 3


def test_stats_count_rows_in_and_out(kind):
    buffer = kind(8)
    buffer.add(rows(10))
    buffer.sample(5)
    stats = buffer.stats()
    assert {name: stats[name] for name in ("num_rows", "capacity", "num_added", "num_sampled")} == {
        "num_rows": 8,
        "capacity": 8,
        "num_added": 10,
        "num_sampled": 5,
    }
    assert (len(buffer), stats["nbytes"] >= 8 * 8) == (8, True)


@pytest.mark.parametrize("told", ["with the rows", "later"])
@pytest.mark.parametrize(("alpha", "expected"), [(1.0, [1, 0.707107, 0.57735, 0.5]), (0.6, [1, 0.812252, 0.719223, 0.659754])])
def test_weights_are_normalised_by_the_highest_in_the_buffer(alpha, expected, told):  # E5
    priorities = [1.0, 2.0, 3.0, 4.0]
    buffer = prioritized(priorities if told == "with the rows" else [5.0] * 4, alpha=alpha)
    if told == "later":
        buffer.update_priorities(np.arange(4), np.array(priorities))
    batch = buffer.sample(1000)
    weight_of = dict(zip(batch["number"].tolist(), batch["weights"].tolist()))
    assert [weight_of[number] for number in range(4)] == pytest.approx(expected, abs=1e-6)
    assert batch["weights"].dtype == np.float32
    drawn = np.array(priorities) ** alpha / np.sum(np.array(priorities) ** alpha)
    assert counts(buffer, 1000) == pytest.approx(1000 * drawn, abs=1)


def test_the_row_of_the_highest_weight_need_not_be_in_the_sample():  # E5
    buffer = prioritized([1e-9, 4.0], beta=1.0)
    assert buffer.sample(1)["weights"].tolist() == pytest.approx([1e-9 / 4])


def test_equal_priorities_give_weights_of_one():  # E5
    assert set(prioritized([7.0] * 5, beta=1.0).sample(50)["weights"].tolist()) == {1.0}


def test_rows_are_drawn_in_proportion_to_priority_to_the_alpha():
    buffer = prioritized([1.0, 4.0, 9.0], alpha=0.5)
    assert counts(buffer, 6000) == pytest.approx([1000, 2000, 3000], abs=1)


def test_alpha_zero_draws_all_rows_alike_with_weights_of_one():
    buffer = prioritized([1.0, 100.0], alpha=0.0)
    assert counts(buffer, 1000) == pytest.approx([500, 500], abs=1)
    assert set(buffer.sample(10)["weights"].tolist()) == {1.0}


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=80), st.integers(1, 300), st.floats(0, 1), st.floats(0, 1))
def test_a_sample_takes_one_row_from_each_equal_part_of_the_total(priorities, num_rows, alpha, beta):
    buffer = prioritized(priorities, alpha=alpha, beta=beta)
    batch = buffer.sample(num_rows)
    expected = num_rows * np.array(priorities) ** alpha / np.sum(np.array(priorities) ** alpha)
    drawn = np.bincount(batch["number"], minlength=len(priorities))
    assert (np.abs(drawn - expected) < 2).all()
    assert (batch["weights"] <= 1).all()


@pytest.mark.parametrize(("count", "capacity"), [(4096, 4096), (100, 512)])
def test_rounding_at_the_top_never_draws_a_row_that_is_not_there(count, capacity):  # E1
    buffer = prioritized([0.5] * count, capacity, alpha=0.4)
    for num_rows in (1, 100_000):
        drawn = buffer.sample(num_rows)["batch_indexes"]
        assert 0 <= drawn.min() <= drawn.max() < count


@pytest.mark.parametrize("alpha", [1.0, 0.6])
def test_a_new_row_gets_the_highest_priority_so_far(alpha):  # E4
    buffer = prioritized([1.0] * 10, alpha=alpha, beta=1.0)
    buffer.update_priorities(np.arange(10), np.array([0.1] * 4 + [50.0] + [0.1] * 5))
    buffer.add(rows(1, 10))
    weight_of = priorities_of(buffer)
    assert weight_of[10] == weight_of[4] == pytest.approx((0.1 / 50) ** alpha)
    assert buffer.max_priority == 50.0


def test_a_new_row_gets_priority_one_before_any():
    buffer = PrioritizedReplayBuffer(10, alpha=1.0, beta=1.0)
    buffer.add(rows(1))
    buffer.add(rows(1, 1), np.array([0.25]))
    assert priorities_of(buffer) == {0: 0.25, 1: 1.0}


def test_rows_may_bring_priorities_of_their_own():  # E4: Ape-X
    buffer = prioritized([2.0, 8.0], beta=1.0)
    assert priorities_of(buffer) == {0: 1.0, 1: 0.25}


def test_rows_over_the_end_keep_the_priorities_that_they_brought():
    buffer = prioritized([1.0, 1.0, 1.0], capacity=4, beta=1.0)
    buffer.add(rows(3, 3), np.array([2.0, 4.0, 8.0]))
    assert priorities_of(buffer) == {2: 1.0, 3: 0.5, 4: 0.25, 5: 0.125}


def test_a_priority_for_a_row_that_is_gone_never_reaches_the_row_in_its_place():
    buffer = prioritized([1.0, 1.0, 1.0, 1.0], capacity=4, beta=1.0)
    drawn = np.array([0, 1, 3])
    buffer.add(rows(2, 4), np.array([1.0, 1.0]))
    assert buffer.update_priorities(drawn, np.array([100.0, 100.0, 2.0])) == 1
    assert priorities_of(buffer) == {2: 1.0, 3: 0.5, 4: 1.0, 5: 1.0}
    assert (buffer.num_stale_priorities, buffer.num_updated_priorities, buffer.max_priority) == (2, 1, 2.0)


def test_of_several_priorities_for_one_row_the_last_one_holds():
    buffer = prioritized([1.0, 1.0], beta=1.0)
    assert buffer.update_priorities(np.array([1, 0, 1]), np.array([16.0, 1.0, 4.0])) == 3
    assert priorities_of(buffer) == {0: 1.0, 1: 0.25}


def test_no_priorities_change_nothing():
    buffer = prioritized([1.0])
    assert buffer.update_priorities(np.empty(0, np.int64), np.empty(0)) == 0


@pytest.mark.parametrize("priority", REFUSED)
def test_a_priority_that_cannot_be_drawn_by_is_refused_and_changes_nothing(priority):  # E6
    buffer = prioritized([1.0, 2.0, 4.0], beta=1.0)
    with pytest.raises(ValueError, match=r"priority .* of row 1: expected a number above 0"):
        buffer.update_priorities(np.array([0, 1]), np.array([9.0, priority]))
    with pytest.raises(ValueError, match=r"priority .* of row 0: expected a number above 0"):
        buffer.add(rows(1, 3), np.array([priority]))
    assert priorities_of(buffer) == {0: 1.0, 1: 0.5, 2: 0.25}
    assert (len(buffer), buffer.max_priority) == (3, 4.0)


@pytest.mark.parametrize("number", [-1, 3])
def test_a_number_that_no_row_ever_had_is_refused(number):
    buffer = prioritized([1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="rows 0 to 2 were added"):
        buffer.update_priorities(np.array([0, number]), np.array([9.0, 9.0]))
    assert set(buffer.sample(10)["weights"].tolist()) == {1.0}


def test_numbers_may_be_of_any_whole_dtype():
    buffer = prioritized([1.0] * 300, capacity=300, beta=1.0)
    assert buffer.update_priorities(np.array([3, 250], np.uint8), np.array([0.5, 0.25])) == 2
    assert {number: weight for number, weight in priorities_of(buffer).items() if weight > 0.3} == {3: 0.5, 250: 1.0}


@pytest.mark.parametrize("numbers", [np.array([[0, 3]]), np.array(3)])
def test_numbers_of_another_shape_are_refused_and_change_nothing(numbers):
    buffer = prioritized([1.0] * 4, capacity=3)
    with pytest.raises(ValueError, match=r"batch_indexes of shape"):
        buffer.update_priorities(numbers, np.ones(numbers.shape))
    assert buffer.stats()["num_stale_priorities"] == 0


def test_numbers_that_are_not_whole_and_priorities_of_another_shape_are_refused():
    buffer = prioritized([1.0, 1.0])
    with pytest.raises(ValueError, match="batch_indexes of dtype float64"):
        buffer.update_priorities(np.array([0.0]), np.array([1.0]))
    with pytest.raises(ValueError, match=r"shape \(2, 1\) for 2 rows"):
        buffer.update_priorities(np.array([0, 1]), np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"shape \(3,\) for 2 rows"):
        buffer.add(rows(2, 2), np.ones(3))


@pytest.mark.parametrize("exponent", [-0.1, 1.1, np.nan])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_an_exponent_out_of_range_is_refused(name, exponent):
    with pytest.raises(ValueError, match=rf"{name}={exponent}: expected 0 .* to 1"):
        PrioritizedReplayBuffer(10, **{name: exponent})


def test_priorities_of_any_size_stay_drawable():
    buffer = prioritized([5e-324, 1.0, 1e300], beta=1.0)
    assert counts(buffer, 100) == [0, 0, 100]
    assert np.isfinite(buffer.sample(10)["weights"]).all()
