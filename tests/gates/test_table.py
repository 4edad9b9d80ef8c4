"""The table, the settings it names, and the page in docs say the same."""

import numpy as np
import pytest

from flowrl.runs.settings import RunSettings, read_settings
from gates.measuring import NUM_EPISODES
from gates.page import page
from gates.records import ROOT, read, settings_key
from gates.table import ROWS
from tests.envs import PointMass, riccati

RESULTS = read(ROOT / "gates/results.jsonl")
BUDGETS = {
    "ppo_cartpole": 100_000,
    "ppo_acrobot": 500_000,
    "ppo_pendulum": 300_000,
    "ppo_point_mass": 100_000,
    "a2c_cartpole": 500_000,
    "dqn_cartpole": 200_000,
    "dqn_acrobot": 200_000,
    "dqn_frozenlake": 300_000,
    "apex_cartpole": 300_000,
    "a3c_cartpole": 500_000,
}
"""The most env steps that a row may take."""
ROW_NAMES = [row.name for row in ROWS]


@pytest.fixture(params=ROWS, ids=ROW_NAMES)
def row(request):
    return request.param


@pytest.fixture
def run(row, monkeypatch) -> RunSettings:
    monkeypatch.chdir(ROOT)
    return RunSettings.from_dict(read_settings(ROOT / row.settings))


def test_training_stops_within_the_budget_and_not_before_the_bar(row, run):
    bar = {"ppo_point_mass": -1.1 * best_cost(), "dqn_frozenlake": 1.0}.get(row.name, row.each if row.mean is None else row.mean)
    assert run.stop.mean_return >= bar - 1e-3 * abs(bar)
    assert run.stop.steps <= BUDGETS[row.name]


def test_whole_rounds_and_whole_reports_make_up_the_budget(row, run):
    config = run.config
    batch = config.fragment_rows if "buffer_size" in config else config.train_batch_size
    assert config.metrics_num_episodes == NUM_EPISODES
    if not row.is_asynchronous:
        assert batch % config.fragment_rows == 0
        assert config.min_steps_per_reporting % batch == 0
        assert run.stop.steps % max(batch, config.min_steps_per_reporting) == 0


def test_asynchronous_rows_run_on_ray_with_two_workers_and_three_seeds(row, run):
    assert row.is_asynchronous == (run.algorithm.name in ("apex", "a3c"))
    assert (run.config.engine_name, run.config.num_workers) == (("ray", 2) if row.is_asynchronous else ("serial", 0))
    assert row.seeds == ((0, 1, 2) if row.is_asynchronous else (0, 1, 2, 3, 4))


def test_each_row_starts_from_a_file_without_a_seed_of_its_own(row):
    assert "seed" not in read_settings(ROOT / row.settings)


def test_the_page_is_the_one_that_the_kept_outcomes_give():
    assert (ROOT / "docs/results.md").read_text() == page(ROWS, RESULTS)


def test_kept_outcomes_are_of_the_settings_as_they_are(row):
    kept = {outcome["settings_key"] for (name, _), outcome in RESULTS.items() if name == row.name}
    assert kept <= {settings_key(ROOT / row.settings)}


def best_cost() -> float:
    """The mean of x^T P x over starts: a circle of radius 0.5 for the position, a square of half-width 0.2 for the velocity."""
    _, p = riccati(PointMass.A, PointMass.B, PointMass.Q, PointMass.R, PointMass.HORIZON)
    return float(np.trace(p @ np.diag([0.5**2 / 2] * 2 + [0.2**2 / 3] * 2)))
