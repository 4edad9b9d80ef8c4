"""Values that merge: several workers' give what one worker's would have given."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.metrics import UNITS, Max, Mean, MetricsContext, Timer, get_metrics, names
from flowrl.metrics.context import ACTIVE, active

samples = st.lists(st.lists(st.integers(-1000, 1000).map(float), max_size=6), min_size=1, max_size=5)


@given(samples)
def test_a_mean_of_parts_is_the_mean_of_all_never_a_mean_of_means(parts):
    merged = Mean()
    for part in parts:
        mine = Mean()
        for value in part:
            mine.push(value)
        merged.merge(mine)
    everything = [value for part in parts for value in part]
    if everything:
        assert merged.value == pytest.approx(sum(everything) / len(everything))
    else:
        assert math.isnan(merged.value)


@given(samples)
def test_a_max_of_parts_is_the_max_of_all(parts):
    merged = Max()
    for part in parts:
        mine = Max()
        for value in part:
            mine.push(value)
        merged.merge(mine)
    assert merged.value == max((value for part in parts for value in part), default=-math.inf)


def test_timers_merge_to_totals_and_rates_come_from_them():
    timer = Timer(seconds=1.0, calls=1, units=10)
    timer.merge(Timer(seconds=3.0, calls=3, units=70))
    assert (timer.mean_s, timer.units_per_s) == (1.0, 20.0)
    assert timer.stats() == {"calls": 4, "seconds": 4.0, "mean_s": 1.0, "units": 80, "units_per_s": 20.0}


def test_a_timer_before_its_first_call_is_nan_without_a_warning():
    assert math.isnan(Timer().mean_s) and math.isnan(Timer().units_per_s) and math.isnan(Timer().value)


def test_a_timer_counts_calls_and_seconds():
    timer = Timer()
    for _ in range(3):
        with timer:
            pass
    assert timer.calls == 3
    assert 0 <= timer.seconds < 1


def test_a_timer_does_not_nest_and_works_again_afterwards():
    timer = Timer()
    with timer, pytest.raises(RuntimeError, match="already running"), timer:
        pass
    with timer:
        pass
    assert timer.calls == 2


def test_observing_merges_and_refuses_another_kind():
    context = MetricsContext()
    context.observe("x", Mean.of(1.0))
    context.observe("x", Mean.of(4.0, count=2))
    assert context.values["x"].value == 3.0
    with pytest.raises(TypeError, match="use two names"):
        context.observe("x", Max(1.0))


def test_observing_does_not_change_the_value_that_it_was_given():
    """A worker may go on with its own mean after it has reported it."""
    context, mine = MetricsContext(), Mean.of(1.0)
    context.observe("x", mine)
    context.observe("x", Mean.of(5.0))
    assert mine == Mean.of(1.0)


def test_taking_empties_a_context_and_merging_brings_all_of_it_back():
    worker, driver = MetricsContext(), MetricsContext()
    for _ in range(2):
        worker.counters["n"] += 3
        worker.timers["t"].merge(Timer(seconds=1.0, calls=1))
        worker.observe("m", Mean.of(2.0))
        worker.info["i"] = "told"
        taken = worker.take()
        assert worker.empty
        driver.merge(taken)
    assert driver.counters["n"] == 6
    assert driver.timers["t"].calls == 2
    assert driver.values["m"] == Mean(4.0, 2)
    assert driver.info == {"i": "told"}


def test_active_gives_back_what_was_there():
    outer, inner = MetricsContext(), MetricsContext()
    with active(outer):
        with pytest.raises(KeyError), active(inner):
            assert get_metrics() is inner
            raise KeyError
        assert get_metrics() is outer
    assert ACTIVE.slot[0] is None


def test_every_counter_name_has_a_unit():
    constants = {value for name, value in vars(names).items() if name.startswith("NUM_")}
    assert constants == set(UNITS)
    assert all(UNITS.values())
