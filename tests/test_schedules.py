import pytest

from flowrl.schedules import checked_schedule, value_at

FALLING = ((0, 1.0), (1000, 0.1))


@pytest.mark.parametrize(("steps", "value"), [(0, 1.0), (400, 0.64), (1000, 0.1), (2000, 0.1)])
def test_a_schedule_is_straight_between_its_points_and_stays_at_its_last_value(steps, value):  # L4
    assert value_at(FALLING, steps, constant=7.0) == pytest.approx(value)


def test_before_its_first_point_a_schedule_has_the_first_value():
    assert value_at(((100, 2.0), (200, 4.0)), 0, constant=7.0) == 2.0


def test_several_pieces_and_a_single_point():
    assert [value_at(((0, 0.0), (10, 1.0), (20, 0.0)), steps, 7.0) for steps in (5, 10, 15, 99)] == [0.5, 1.0, 0.5, 0.0]
    assert value_at(((50, 3.0),), 0, 7.0) == value_at(((50, 3.0),), 99, 7.0) == 3.0


def test_without_a_schedule_the_constant_holds():
    assert value_at(None, 10**9, constant=0.25) == 0.25


def test_points_of_a_settings_file_become_tuples():
    assert checked_schedule([[0, 1], [10, 0.5]]) == ((0, 1.0), (10, 0.5))


@pytest.mark.parametrize(
    "points",
    [
        [],
        3,
        "0:1",
        [0, 1],
        [[0, 1, 2]],
        [[0, "a"]],
        [[10, 1], [5, 2]],
        [[5, 1], [5, 2]],
        [[-1, 1]],
        [[0, float("nan")]],
        [[0.5, 1]],
        [[True, 1]],
    ],
    ids=repr,
)
def test_what_is_no_schedule_is_none(points):
    assert checked_schedule(points) is None
