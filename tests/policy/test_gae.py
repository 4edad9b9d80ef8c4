import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.policy import gae

NO, YES = False, True


def by_definition(rewards, values, next_values, terminateds, ends, gamma, lambda_):
    """Each advantage as the sum it is defined as, row by row: sum over k of (gamma * lambda)^k * delta_{t+k}."""
    advantages = []
    for t in range(len(rewards)):
        total, k = 0.0, 0
        while True:
            at = t + k
            bootstrap = 0.0 if terminateds[at] else next_values[at]
            total += (gamma * lambda_) ** k * (rewards[at] + gamma * bootstrap - values[at])
            if ends[at]:
                break
            k += 1
        advantages.append(total)
    return advantages


@pytest.mark.parametrize(("terminated", "targets"), [(YES, [0.9405, 1.0]), (NO, [0.9405, 1.0 + 0.99 * 5.0])], ids=["term", "trunc"])
def test_the_row_before_the_last_keeps_the_value_of_the_next(terminated, targets):  # C1
    values = np.array([0.0, 0.95, 0.0, 0.95])
    next_values = np.array([0.95, 5.0, 0.95, 5.0])
    ends = np.array([NO, YES, NO, YES])
    terminateds = ends if terminated else np.zeros(4, bool)
    advantages = gae(np.array([0.0, 1.0, 0.0, 1.0]), values, next_values, terminateds, ends, gamma=0.99, lambda_=0.0)
    assert (advantages + values).tolist() == pytest.approx(targets * 2)


@pytest.mark.parametrize("value_after_reset", [0.5, 100.0])
def test_a_termination_cuts_where_it_is_and_nothing_crosses_it(value_after_reset):  # C3
    values = np.array([0.5, 1.0, value_after_reset, 1.0])
    next_values = np.array([1.0, value_after_reset, 1.0, 3.0])
    advantages = gae(np.ones(4), values, next_values, np.array([NO, YES, NO, NO]), np.array([NO, YES, NO, YES]), gamma=0.9, lambda_=0.8)
    assert advantages[:2].tolist() == pytest.approx([1.4, 0.0])
    if value_after_reset == 0.5:
        assert advantages[2:].tolist() == pytest.approx([3.344, 2.7])


def test_with_lambda_1_a_terminated_episode_gives_its_discounted_return():
    rewards = np.array([1.0, 2.0, 4.0])
    ends = np.array([NO, NO, YES])
    advantages = gae(rewards, np.zeros(3), np.zeros(3), ends, ends, gamma=0.5, lambda_=1.0)
    assert advantages.tolist() == [3.0, 4.0, 4.0]


def test_a_value_that_is_not_a_number_after_a_termination_is_not_looked_at():
    end = np.array([YES])
    assert gae(np.ones(1), np.zeros(1), np.array([np.nan]), end, end, gamma=0.9, lambda_=0.9).tolist() == [1.0]


numbers = st.floats(-10, 10)
row = st.tuples(numbers, numbers, numbers, st.sampled_from(["goes on", "terminated", "truncated", "cut"]))


@given(st.lists(row, min_size=1, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_the_recursion_is_the_sum_it_stands_for(rows, gamma, lambda_):
    rewards, values, next_values, kinds = (np.array(column) for column in zip(*rows))
    terminateds = kinds == "terminated"
    ends = kinds != "goes on"
    ends[-1] = True
    arguments = (rewards, values, next_values, terminateds, ends, gamma, lambda_)
    assert gae(*arguments).tolist() == pytest.approx(by_definition(*arguments), abs=1e-9)
