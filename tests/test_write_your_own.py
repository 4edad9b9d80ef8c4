"""The algorithms that docs/write_your_own.md builds: they are the files they are said to be, and they learn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flowrl.cli import main as flowrl
from flowrl.references import find

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "write_your_own.md"
REINFORCE = ROOT / "examples" / "reinforce.py"
MOST_LINES = 60
MOST_STEPS = 150_000


def file_in_page(name: str) -> str:
    """The file that the page's block of this name writes."""
    (text,) = re.findall(rf"^```python\n(# {re.escape(name)}\n.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return text


def trained_to_400(config, plan):
    """The result at which the mean return of the last 100 training episodes is 400, or the first one after 150,000 env steps."""
    with config.build(execution_plan=plan) as trainer:
        return trainer.train_until(episode_return_mean=400, num_steps_sampled=MOST_STEPS)


def test_the_page_shows_the_example_as_it_is():
    assert file_in_page("reinforce.py") == REINFORCE.read_text()


def test_reinforce_is_at_most_60_lines():
    assert len(REINFORCE.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize(("engine", "num_workers", "seed"), [("serial", 0, 4), ("ray", 2, 0)])
def test_reinforce_solves_cartpole(ray_cluster, engine, num_workers, seed):
    """Env steps to a mean of 400, seeds 0 to 4: 92, 105, 99, 111, 60 thousand without workers; 62, 62, 64, 74, 114 with two."""
    config = find(f"{REINFORCE}:ReinforceConfig")(env="CartPole-v1", engine=engine, num_workers=num_workers, seed=seed)
    result = trained_to_400(config, find(f"{REINFORCE}:execution_plan"))
    assert result["episode_return_mean"] >= 400
    assert result["num_steps_sampled"] <= MOST_STEPS


def test_the_policy_from_nothing_solves_cartpole(tmp_path):
    """Seeds 0 to 4: 75, 61, 96, 119, 98 thousand env steps."""
    path = tmp_path / "from_nothing.py"
    path.write_text(file_in_page("from_nothing.py"))
    result = trained_to_400(find(f"{path}:PureConfig")(env="CartPole-v1", seed=1), find(f"{path}:execution_plan"))
    assert result["episode_return_mean"] >= 400
    assert result["num_steps_sampled"] <= MOST_STEPS


def test_a_file_of_ones_own_goes_through_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(REINFORCE.read_text())
    plan, config = "my.py:execution_plan", "my.py:ReinforceConfig"
    asked = ["--env", "CartPole-v1", "--set", "lr=3e-4", "--set", "baseline_coeff=0.25", "--stop-steps", "1", "--run", "mine"]
    assert flowrl(["train", plan, "--config", config, *asked]) == 0
    settings = json.loads(Path("runs/mine/config.json").read_text())
    assert settings["algorithm"] == plan and settings["config"] == config
    assert settings["lr"] == 3e-4 and settings["baseline_coeff"] == 0.25 and settings["gamma"] == 0.98
    assert flowrl(["eval", "mine", "--episodes", "2"]) == 0
    assert flowrl(["graph", plan, "-o", "p.svg"]) == 0
    assert "TrainOneStep" in Path("p.svg").read_text()
