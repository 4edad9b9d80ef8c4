"""What is seen while a run goes on."""

import io
import math

import pytest
from rich.console import Console

from flowrl.cli.display import LiveDisplay, PlainLines, display_for, line_of
from flowrl.runs.stopping import StopConditions


def result(steps, mean=math.nan, time_s=1.0, **more):
    returns = {"episode_return_mean": mean, "episode_return_min": mean - 1, "episode_return_max": mean + 1}
    return {**returns, "num_steps_sampled": steps, "episodes_total": 3, "steps_per_s": 1234.5, "time_s": time_s, **more}


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def terminal(**settings):
    usual = {"file": io.StringIO(), "force_terminal": True, "width": 80, "height": 30, "_environ": {"TERM": "xterm"}}
    return Console(**{**usual, **settings})


def test_a_terminal_gets_the_live_display_and_a_pipe_plain_lines():
    utf = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    assert isinstance(display_for(terminal(file=utf), StopConditions()), LiveDisplay)
    assert isinstance(display_for(terminal(file=utf, force_terminal=False), StopConditions()), PlainLines)
    assert isinstance(display_for(terminal(file=utf, _environ={"TERM": "dumb"}), StopConditions()), PlainLines)
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert isinstance(display_for(terminal(file=ascii_only), StopConditions()), PlainLines)


# --- plain lines ---


def test_a_line_has_steps_returns_episodes_speed_and_time():
    assert line_of(result(4096, mean=23.44, time_s=61.5)) == "     4,096 steps  return 23.4 (22.4 to 24.4)  3 episodes  1,234 steps/s  1:01"


def test_what_is_not_known_yet_is_a_dash():
    assert line_of(result(100, steps_per_s=math.nan)) == "       100 steps  return -  3 episodes  - steps/s  0:01"
    assert line_of({}) == "         0 steps  return -  0 episodes  - steps/s  0:00"


def test_lines_come_once_a_second_at_most_and_the_last_one_always(capsys):
    clock = Clock()
    with PlainLines(clock=clock) as display:
        for steps, later_s in [(1, 0.0), (2, 0.4), (3, 0.5), (4, 0.2), (5, 0.1), (6, 0.1)]:
            clock.now_s += later_s
            display.update(result(steps))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1", "4", "6"]


def test_the_last_line_is_not_printed_twice(capsys):
    with PlainLines(clock=Clock()) as display:
        display.update(result(1))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_run_without_results_prints_nothing(capsys):
    with PlainLines():
        pass
    assert capsys.readouterr().out == ""


# --- the live display ---


def shown(stop, *results, clock=None):
    """The lines of the picture after these results."""
    clock = clock or Clock()
    console = terminal(force_terminal=False)
    display = LiveDisplay(console, stop, clock=clock)
    for one in results:
        display.update(one)
    clock.now_s += 10
    console.print(display.picture())
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_until_the_first_result_it_counts_the_seconds():
    assert shown(StopConditions()) == ["starting, 0:10"]


def test_it_shows_the_curve_both_conditions_and_the_time_that_is_left_at_most():
    lines = shown(StopConditions(475, 10_000), result(1000, mean=25.0, time_s=1.0), result(2000, mean=250.0, time_s=2.0))
    assert len(lines) == 11
    assert lines[0].startswith("250 ┤") and lines[7].startswith(" 25 ┤")
    assert any(ord(letter) > 0x2800 for letter in "".join(lines[:8]))
    words = [line.split() for line in lines[8:]]
    assert (words[0][0], words[0][2:]) == ("return", ["250.0", "of", "475", "3", "episodes"])
    assert (words[1][:2], words[1][3:]) == (["env", "steps"], ["2,000", "of", "10,000", "1,234/s"])
    assert " ".join(words[2]) == "time 0:10, at most 0:08 left"
    assert [line.count("━") for line in lines[8:10]] == [15, 6]


def test_without_conditions_there_are_neither_bars_nor_a_time_left():
    lines = shown(StopConditions(), result(1000, mean=25.0))
    assert [" ".join(line.split()) for line in lines[8:]] == ["return 25.0 3 episodes", "env steps 1,000 1,234/s", "time 0:10"]


def test_with_steps_alone_the_time_left_is_what_it_is():
    assert shown(StopConditions(steps=3000), result(1000, time_s=2.0))[-1].endswith("0:10, 0:04 left")


def test_before_the_first_finished_episode_there_is_no_curve_and_a_dash():
    lines = shown(StopConditions(mean_return=5), result(1000))
    assert lines[:8] == [""] * 8
    assert "- of 5" in lines[8]


@pytest.mark.parametrize(("mean", "bar"), [(-1200.0, 0.0), (-700.0, 0.5), (-200.0, 1.0), (-1500.0, -0.3)])
def test_progress_towards_a_return_counts_from_the_first_mean(mean, bar):
    display = LiveDisplay(terminal(), StopConditions(mean_return=-200))
    display.update(result(1, mean=-1200.0))
    assert display._towards_return(mean) == pytest.approx(bar)


def test_a_long_run_keeps_a_bounded_number_of_points():
    display = LiveDisplay(terminal(), StopConditions())
    for steps in range(10_000):
        display.update(result(steps, mean=float(steps)))
    assert len(display._points) <= 2000
    assert display._points[0] == (0, 0.0) and display._points[-1] == (9999, 9999.0)


def test_on_a_terminal_it_leaves_the_last_picture_and_the_cursor():
    console = terminal()
    with LiveDisplay(console, StopConditions(steps=1000)) as display:
        display.update(result(500, mean=1.0))
        display.update(result(1000, mean=2.0))
    written = console.file.getvalue()
    assert "1,000 of 1,000" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
