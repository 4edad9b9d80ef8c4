"""`python -m gates`, with rows that take a second: what it keeps, what it measures again, what it says and writes."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gates.__main__ import Job, Measuring, main
from gates.measuring import measure
from gates.page import page, verdict
from gates.records import ROOT, commit, holds, read, settings_key, source_key, versions
from gates.table import ROWS, SEEDS, Published, Row

TINY = {
    "algorithm": "ppo",
    "stop_return": 500,
    "stop_steps": 400,
    "env": "CartPole-v1",
    "rollout_fragment_length": 200,
    "train_batch_size": 200,
    "num_sgd_iter": 1,
    "hiddens": [4],
}
RUN_TINY = (
    "import sys; from gates.__main__ import main; from gates.table import Row; sys.exit(main(sys.argv[2:], [Row(*eval(sys.argv[1]))]))"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("gates")


@pytest.fixture(scope="module")
def row(folder) -> Row:
    (folder / "tiny.json").write_text(json.dumps(TINY))
    return Row(
        "tiny", "PPO, two batches", str(folder / "tiny.json"), each=1, published=(Published("9 at 400", "a book", "https://a.book"),)
    )


def files(folder: Path) -> list[str]:
    return ["--results", str(folder / "results.jsonl"), "--page", str(folder / "results.md")]


@pytest.fixture(scope="module")
def interrupted(folder, row) -> int:
    """A first call that is interrupted as soon as one seed is done: how many are kept."""
    command = [sys.executable, "-c", RUN_TINY, repr((row.name, row.title, row.settings, row.each)), "--processes", "1", *files(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "5 to measure, 0 kept from before\n"
        assert process.stdout.readline().startswith("tiny seed ")
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode != 0
    assert not (folder / "results.md").exists()
    return len(read(folder / "results.jsonl"))


@pytest.fixture(scope="module")
def resumed(folder, row, interrupted) -> int:
    """The exit code of the same call again."""
    return main(files(folder), [row])


@pytest.fixture(scope="module")
def outcomes(folder, resumed) -> dict:
    return read(folder / "results.jsonl")


def test_an_interrupted_run_goes_on_where_it_was(interrupted, resumed, outcomes):
    assert 1 <= interrupted < len(SEEDS)
    assert resumed == 0
    assert sorted(outcomes) == [("tiny", seed) for seed in SEEDS]


def test_what_was_measured_is_not_measured_again(folder, row, outcomes, capsys):
    assert main(files(folder), [row]) == 0
    assert "0 to measure, 5 kept from before" in capsys.readouterr().out
    assert read(folder / "results.jsonl") == outcomes


def test_an_outcome_says_what_was_reached_and_how(outcomes, row):
    outcome = outcomes["tiny", 2]
    assert (outcome["num_steps_sampled"], outcome["budget"], outcome["stopped_by"]) == (400, 400, "budget")
    assert outcome["commit"] == commit()
    assert outcome["score"] == outcome["episode_return_mean"]
    assert outcome["episode_return_min"] <= outcome["score"] <= outcome["episode_return_max"]
    assert len({outcome["score"] for outcome in outcomes.values()}) == len(SEEDS)


def test_a_seed_is_measured_the_same_again(outcomes, row):
    again = measure(Path(row.settings), row.score, seed=2)
    assert {name: value for name, value in again.items() if name != "wall_s"}.items() <= outcomes["tiny", 2].items()


def test_the_page_has_the_figures_of_the_row_and_of_each_seed(folder, row, outcomes):
    text = (folder / "results.md").read_text()
    assert text == page([row], outcomes)
    scores = [outcome["score"] for outcome in outcomes.values()]
    (line,) = [line for line in text.splitlines() if "two batches" in line]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[1:7] == [f"{sum(scores) / 5:.1f}", f"{min(scores):.1f}", "each 1", "**passed**", "400 (400)", "400"]
    assert commit() in cells[8]
    assert cells[9] == "9 at 400 ([a book](https://a.book))"
    assert [f"| tiny | {seed} | {outcomes['tiny', seed]['score']:.1f} |" in text for seed in SEEDS] == [True] * 5
    assert versions()["torch"] in text


def test_rewriting_measures_nothing(folder, row, outcomes, capsys):
    written = (folder / "results.md").read_text()
    (folder / "results.md").unlink()
    assert main(["--rewrite", *files(folder)], [row]) == 0
    assert "to measure" not in capsys.readouterr().out
    assert (folder / "results.md").read_text() == written


def test_a_row_that_fails_is_named_and_makes_the_exit_code_1(folder, row, outcomes, capsys):
    assert main(files(folder), [replace(row, each=400)]) == 1
    assert "tiny: FAILED" in capsys.readouterr().out
    assert "| each 400 | **FAILED** |" in (folder / "results.md").read_text()


def test_the_mean_has_to_be_reached_too(row, outcomes):
    mean = sum(outcome["score"] for outcome in outcomes.values()) / 5
    assert verdict(replace(row, mean=mean - 0.01), outcomes) == "passed"
    assert verdict(replace(row, mean=mean + 0.01), outcomes) == "FAILED"


def test_where_less_is_better_the_highest_score_is_the_worst(row, outcomes):
    scores = [outcome["score"] for outcome in outcomes.values()]
    cost = replace(row, lower_is_better=True)
    assert verdict(replace(cost, each=max(scores)), outcomes) == "passed"
    assert verdict(replace(cost, each=max(scores) - 0.01), outcomes) == "FAILED"
    assert f"| {max(scores):.1f} | each at most 1 |" in page([cost], outcomes)


def test_a_row_without_all_its_seeds_is_not_measured(row, outcomes):
    some = {key: outcome for key, outcome in outcomes.items() if key[1] != 3}
    assert verdict(row, some) == verdict(row, {}) == "not measured"
    assert "| not measured |" in page([row], {})


def test_only_the_same_settings_source_and_versions_make_an_outcome_hold(outcomes, row):
    now = {"settings_key": settings_key(Path(row.settings)), "source_key": source_key(), "versions": versions()}
    assert holds(outcomes["tiny", 0], now)
    assert not holds(None, now)
    for name in now:
        assert not holds({**outcomes["tiny", 0], name: "another"}, now)


def test_how_a_settings_file_is_laid_out_does_not_matter(tmp_path, row):
    (tmp_path / "same.json").write_text(json.dumps(dict(reversed(TINY.items())), indent=4))
    (tmp_path / "other.json").write_text(json.dumps({**TINY, "lr": 1e-3}))
    assert settings_key(tmp_path / "same.json") == settings_key(Path(row.settings)) != settings_key(tmp_path / "other.json")


def test_training_stops_where_the_mean_of_100_episodes_is_reached(tmp_path):
    (tmp_path / "early.json").write_text(json.dumps({**TINY, "stop_return": 5, "stop_steps": 8000}))
    outcome = measure(tmp_path / "early.json", ROWS[0].score, seed=0)
    assert outcome["stopped_by"] == "return"
    assert 100 * 5 <= outcome["num_steps_sampled"] < 8000


def test_more_steps_than_the_budget_are_refused(tmp_path):
    (tmp_path / "over.json").write_text(json.dumps({**TINY, "stop_steps": 300}))
    with pytest.raises(ValueError, match="trained 400 env steps, the budget is 300"):
        measure(tmp_path / "over.json", ROWS[0].score, seed=0)


def test_a_run_that_goes_wrong_is_told_and_the_others_are_kept(tmp_path, row, capsys):
    (tmp_path / "wrong.json").write_text(json.dumps({**TINY, "lrr": 1}))
    wrong = replace(row, name="wrong", settings=str(tmp_path / "wrong.json"))
    assert main(files(tmp_path), [wrong]) == 1
    said = capsys.readouterr().out
    assert "wrong seed 4 went wrong" in said
    assert "has no setting 'lrr'. Did you mean 'lr'?" in said
    assert "wrong: not measured" in said


def test_an_unknown_row_is_a_one_line_error(row, capsys):
    with pytest.raises(SystemExit) as left:
        main(["tinny"], [row])
    assert left.value.code == 2
    assert "no row tinny; there is tiny" in capsys.readouterr().err


def test_leaving_ends_what_still_runs(tmp_path, row):
    (tmp_path / "endless.json").write_text(json.dumps({**TINY, "stop_steps": 10**9}))
    endless = replace(row, settings=str(tmp_path / "endless.json"))
    with Measuring(2) as measuring:
        job, outcome = next(measuring.outcomes([Job(row, 0), Job(endless, 0)]))
    assert (job, outcome["num_steps_sampled"]) == (Job(row, 0), 400)
    assert sorted(process.returncode for process in measuring.processes) == [-signal.SIGTERM, 0]


def test_asynchronous_plans_are_measured_after_the_others(row):
    jobs = [Job(replace(row, is_asynchronous=True), 0), Job(row, 1)]
    with Measuring(2) as measuring:
        assert [job for job, _ in measuring.outcomes(jobs)] == jobs[::-1]


def test_an_asynchronous_plan_stops_before_its_budget_is_passed(on_ray, tmp_path):
    settings = {"algorithm": "a3c", "env": "CartPole-v1", "num_workers": 2, "num_envs": 1, "rollout_fragment_length": 30, "hiddens": [4]}
    (tmp_path / "a3c.json").write_text(json.dumps({**settings, "stop_return": 500, "stop_steps": 2000, "min_steps_per_reporting": 100}))
    outcome = measure(tmp_path / "a3c.json", ROWS[0].score, seed=0)
    assert outcome["stopped_by"] == "budget"
    assert 2000 - 2 * 100 <= outcome["num_steps_sampled"] <= 2000
