"""docs/results.md, from what was measured: the page is a function of the table and the outcomes, and of nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from gates.records import Outcome, Outcomes
from gates.table import Row

__all__ = ["page", "verdict"]

INTRO = """\
# Results: what flowrl learns

Written by `make gates` (`python -m gates --rewrite` writes it again from [gates/results.jsonl](../gates/results.jsonl)): do not edit.

**Protocol.** Seeds 0 to 4, none exchanged; 0 to 2 where the plan is asynchronous, which runs on Ray with 2 workers. The settings of a
row are a file that `flowrl train --config` takes. Training stops when the budget of env steps is used up, or when the mean return of the
last 100 training episodes reaches the file's `stop_return`. Then the policy as it is then is evaluated once: 100 episodes of its
likeliest actions, in envs and with seeds of their own. A seed's score is the mean of those 100, or what the row says. A row passes when
each seed does, and the mean over the seeds.

One seed by hand: `flowrl train --config settings/a2c_cartpole.json --seed 2 --run a2c`, then `flowrl eval a2c`.

**Published** figures are not measured alike: rl-zoo3 reports one run's evaluation, CleanRL the mean of the last training episodes of
three seeds, RLlib and tianshou what their example has to reach within so many steps.
"""

SUMMARY_HEAD = (
    "run, settings",
    "mean",
    "worst seed",
    "to pass",
    "",
    "env steps: mean (most)",
    "budget",
    "time a seed",
    "commit, date",
    "published",
)
SEED_HEAD = ("run", "seed", "score", "lowest return", "highest", "training mean", "stopped by", "env steps", "time")


def page(rows: Sequence[Row], outcomes: Outcomes) -> str:
    """The page as markdown."""
    measured = [(row, outcomes_of(row, outcomes)) for row in rows]
    return "\n".join([INTRO, *_summary(measured), "", *_each_seed(measured), *_machines(measured)]) + "\n"


def verdict(row: Row, outcomes: Outcomes) -> str:
    """ "passed", "FAILED" or "not measured": some seeds, or all, have no outcome."""
    scores = [outcome["score"] for outcome in outcomes_of(row, outcomes)]
    if not all(row.reaches(score, row.each) for score in scores):
        return "FAILED"
    if len(scores) < len(row.seeds):
        return "not measured"
    return "passed" if row.mean is None or row.reaches(statistics.mean(scores), row.mean) else "FAILED"


def outcomes_of(row: Row, outcomes: Outcomes) -> list[Outcome]:
    """The row's outcomes, by seed."""
    return [outcomes[row.name, seed] for seed in row.seeds if (row.name, seed) in outcomes]


Measured = Sequence[tuple[Row, Sequence[Outcome]]]


def _summary(measured: Measured) -> list[str]:
    return _table(SUMMARY_HEAD, [_summary_row(row, outcomes) for row, outcomes in measured])


def _summary_row(row: Row, outcomes: Sequence[Outcome]) -> list[str]:
    settings = f"[{row.title}](../{row.settings})"
    published = "; ".join(f"{figure} ([{source}]({url}))" for figure, source, url in row.published)
    bar = row.bar
    state = verdict(row, {(row.name, outcome["seed"]): outcome for outcome in outcomes})
    if not outcomes:
        return [settings, "", "", bar, state, "", "", "", "", published]
    scores = [outcome["score"] for outcome in outcomes]
    steps = [outcome["num_steps_sampled"] for outcome in outcomes]
    when = sorted({f"`{outcome['commit']}`, {outcome['date']}" for outcome in outcomes})
    return [
        settings,
        row.shown(statistics.mean(scores)),
        row.shown(row.worst(scores)),
        bar,
        f"**{state}**",
        f"{statistics.mean(steps):,.0f} ({max(steps):,})",
        " / ".join(sorted({f"{outcome['budget']:,}" for outcome in outcomes})),
        f"{statistics.mean(outcome['wall_s'] for outcome in outcomes):.0f} s",
        "; ".join(when),
        published,
    ]


def _each_seed(measured: Measured) -> list[str]:
    lines = [_seed_row(row, outcome) for row, outcomes in measured for outcome in outcomes]
    return ["## Each seed", "", *_table(SEED_HEAD, lines), ""] if lines else []


def _seed_row(row: Row, outcome: Outcome) -> list[str]:
    return [
        row.name,
        str(outcome["seed"]),
        row.shown(outcome["score"]),
        row.shown(outcome["episode_return_min"]),
        row.shown(outcome["episode_return_max"]),
        row.shown(outcome["training_return_mean"]),
        outcome["stopped_by"],
        f"{outcome['num_steps_sampled']:,}",
        f"{outcome['wall_s']:.0f} s",
    ]


def _machines(measured: Measured) -> list[str]:
    """What it ran on: one line for each machine with the same versions."""
    seen = {
        f"{outcome['machine']}; {', '.join(f'{name} {number}' for name, number in outcome['versions'].items())}"
        for _, outcomes in measured
        for outcome in outcomes
    }
    return ["Times are of training, one process a core (asynchronous plans: alone), on " + "; ".join(sorted(seen)) + "."] if seen else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
