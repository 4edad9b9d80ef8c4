"""A curve in braille dots."""

import math

import pytest

from flowrl.cli.plot import text_plot


@pytest.mark.parametrize(
    ("xs", "ys"),
    [
        (range(1, 100), [math.sin(x / 9) * 1e6 for x in range(99)]),
        ([5], [3.0]),
        ([0], [0.0]),
        ([1, 2], [7.0, 7.0]),
        ([1, 2, 3], [math.nan, -5.0, math.inf]),
        (range(5000), [float(-x) for x in range(5000)]),
    ],
    ids=["a wave", "a point", "the origin", "a level", "with gaps", "many"],
)
@pytest.mark.parametrize(("width", "height"), [(80, 8), (20, 3), (10, 1), (1, 2)])
def test_it_has_as_many_lines_as_asked_for_and_something_in_them(xs, ys, width, height):
    lines = text_plot(list(xs), ys, width, height)
    assert len(lines) == height
    assert any(0x2800 < ord(letter) < 0x2900 for line in lines for letter in line)
    assert width < 20 or all(len(line) <= width for line in lines)


def test_without_a_finite_point_it_is_empty():
    assert text_plot([], [], 20, 3) == ["", "", ""]
    assert text_plot([1, 2], [math.nan, math.nan], 20, 3) == ["", "", ""]


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right():
    top, bottom = text_plot([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8], 6, 2)
    assert (top[:3], bottom[:3]) == ("8 ┤", "1 ┤")
    assert (top[3], bottom[-1]) == ("\u2800", "\u2800")
    assert top[-1] != "\u2800" and bottom[3] != "\u2800"


def test_jumps_are_joined():
    lines = text_plot([1, 2], [0.0, 100.0], 9, 8)
    assert all(any(0x2800 < ord(letter) < 0x2900 for letter in line) for line in lines)
