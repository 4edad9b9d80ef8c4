import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flowrl.policy import Moments, Normalizer

ROWS = arrays(np.float64, st.tuples(st.integers(1, 20), st.just(3)), elements=st.floats(-1e3, 1e3))


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_merged_moments_are_those_of_all_rows_together(parts):
    merged = Moments.of(parts[0])
    for part in parts[1:]:
        merged.merge(Moments.of(part))
    rows = np.concatenate(parts)
    assert merged.count == len(rows)
    assert np.allclose(merged.mean, rows.mean(0), atol=1e-9)
    assert np.allclose(merged.variance, rows.var(0), atol=1e-6)


def test_rows_far_from_zero_keep_their_variance():
    moments = Moments.of(np.array([[1e8], [1e8 + 1]]))
    moments.merge(Moments.of(np.array([[1e8 + 2]])))
    assert moments.variance[0] == pytest.approx(2 / 3)


def test_before_the_first_update_rows_pass_as_they_are():
    rows = np.array([[1.0, -50.0]])
    assert Normalizer((2,)).standardized(rows).tolist() == Normalizer((2,)).scaled(rows).tolist() == rows.tolist()


def test_rows_become_mean_0_and_deviation_1_and_outliers_are_cut():
    normalizer = Normalizer((1,))
    rows = np.random.default_rng(0).normal(5, 2, (1000, 1))
    normalizer.update(Moments.of(rows))
    scaled = normalizer.standardized(rows)
    assert scaled.dtype == np.float32
    assert (scaled.mean(), scaled.std()) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-5))
    assert normalizer.standardized(np.array([[1e6], [-1e6]])).tolist() == [[10.0], [-10.0]]
    assert normalizer.scaled(np.array([[1e6], [-1e6]])).tolist() == [[10.0], [-10.0]]
    assert normalizer.scaled(rows).mean() == pytest.approx(5 / 2, rel=0.1)  # only scaled, not shifted


def test_a_number_that_never_changes_becomes_0():
    normalizer = Normalizer((1,))
    normalizer.update(Moments.of(np.full((10, 1), 3.0)))
    assert normalizer.standardized(np.array([[3.0]])).tolist() == [[0.0]]


def test_whole_numbers_are_seen_as_numbers():  # uint8 would wrap
    normalizer = Normalizer((1,))
    normalizer.update(Moments.of(np.array([[0], [255]], np.uint8)))
    assert normalizer.standardized(np.array([[255]], np.uint8)).tolist() == [[pytest.approx(1.0)]]


def test_state_is_a_copy_that_another_one_takes_over():
    one, other = Normalizer((2,)), Normalizer((2,))
    one.update(Moments.of(np.array([[1.0, 2.0], [3.0, 6.0]])))
    other.set_state(one.state())
    one.update(Moments.of(np.array([[9.0, 9.0]])))
    assert (other.moments.count, other.moments.mean.tolist(), other.moments.variance.tolist()) == (2, [2, 4], [1, 4])
