"""When a run has done enough."""

import math

import pytest

from flowrl.runs.stopping import StopConditions


def result(mean, steps):
    return {"episode_return_mean": mean, "num_steps_sampled": steps}


@pytest.mark.parametrize(
    ("stop", "mean", "steps", "met"),
    [
        (StopConditions(), 1e9, 10**9, None),
        (StopConditions(mean_return=475), 474.9, 10**9, None),
        (StopConditions(mean_return=475), 475.0, 1, "return"),
        (StopConditions(mean_return=-200), -199.0, 1, "return"),
        (StopConditions(mean_return=-200), math.nan, 1, None),
        (StopConditions(steps=1000), 0.0, 999, None),
        (StopConditions(steps=1000), math.nan, 1000, "steps"),
        (StopConditions(mean_return=0, steps=1000), 5.0, 2000, "return"),
        (StopConditions(mean_return=0, steps=1000), -5.0, 2000, "steps"),
    ],
)
def test_the_first_condition_that_is_met_ends_the_run(stop, mean, steps, met):
    assert stop.met_by(result(mean, steps)) == met


def test_a_result_without_these_numbers_meets_nothing():
    assert StopConditions(mean_return=0, steps=1).met_by({"other": 3}) is None


def test_conditions_say_what_they_are():
    assert str(StopConditions(475, 100_000)) == "a return of 475 or 100,000 env steps"
    assert str(StopConditions()) == "Ctrl-C"
