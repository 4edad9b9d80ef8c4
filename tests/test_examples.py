"""The plans of examples/: each goes through the front doors, is drawn in the README as it is, and learns what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import flowrl as fl
from flowrl.algorithms import ppo
from flowrl.cli import main as flowrl
from flowrl.references import load_module

FOLDER = Path(__file__).resolve().parent.parent / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
DRAWN = ["answer_sender", "cross_entropy", "keep_best"]


def example(name):
    """The module of an example, found by its path: other processes get it by value."""
    return load_module(str(FOLDER / f"{name}.py"))


def without_lines(text: str) -> str:
    return re.sub(r"\.py:\d+", ".py", text)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_trains_from_the_command_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = f"{FOLDER / name}.py:execution_plan"
    assert flowrl(["train", plan, "--env", "CartPole-v1", "--engine", "serial", "--stop-steps", "1", "--run", "short"]) == 0
    assert flowrl(["eval", "short", "--episodes", "1"]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_one_file_of_at_most_60_lines_of_code_that_says_what_it_is(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert ast.get_docstring(ast.parse(text))
    code = re.sub(r'"""(.*?)"""', "", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 60


def test_links_of_the_readme_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", (FOLDER / "README.md").read_text()):
        assert (FOLDER / target).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_names_every_example(name):
    assert f"[{name}.py]({name}.py)" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("name", DRAWN)
def test_the_readme_shows_the_plan_as_it_draws_itself(name, tmp_path):
    (picture,) = re.findall(rf"^## {name}.py\n\n```mermaid\n(.*?)^```$", (FOLDER / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert flowrl(["graph", f"{FOLDER / name}.py:execution_plan", "-o", str(tmp_path / "plan.mmd")]) == 0
    assert without_lines(picture) == without_lines((tmp_path / "plan.mmd").read_text())


def test_keep_best_keeps_the_best_policy_it_saw(tmp_path):
    module = example("keep_best")
    config = module.KeepBestConfig(env="CartPole-v1", best_folder=str(tmp_path / "best"), seed=0)
    with config.build(execution_plan=module.execution_plan) as trainer:
        result = trainer.train_until(num_steps_sampled=15_000)
    kept = fl.load_policy(tmp_path / "best").evaluate(config.num_games)["episode_return_mean"]
    assert kept == result["info"]["best_return"]
    assert kept >= 200


def test_keep_best_trains_as_ppo_does_without_it(tmp_path):
    module = example("keep_best")
    config = module.KeepBestConfig(env="CartPole-v1", best_folder=str(tmp_path / "best"), num_games=1, num_sgd_iter=2)
    with config.build(execution_plan=module.execution_plan) as watched, config.build(execution_plan=ppo.execution_plan) as alone:
        for _ in range(6):
            assert watched.train()["info"]["learner"] == alone.train()["info"]["learner"]


@pytest.mark.parametrize("engine", ["serial", "ray"])
def test_answer_sender_learns_from_fragments_that_are_about_one_update_old(ray_cluster, engine):
    module = example("answer_sender")
    config = module.AnswerSenderConfig(env="CartPole-v1", engine=engine, seed=0)
    with config.build(execution_plan=module.execution_plan) as trainer:
        result = trainer.train_until(episode_return_mean=120, num_steps_sampled=40_000)
    assert result["episode_return_mean"] >= 120
    assert result["num_weight_syncs"] == result["num_steps_sampled"] / 512  # one worker for each fragment
    assert 0.5 < result["info"]["updates_behind"] < 1.5  # with two workers, one trains the other's in between


def test_answer_sender_needs_workers_to_answer():
    module = example("answer_sender")
    with pytest.raises(fl.PlanError, match="zip_with_source_actor"):
        module.AnswerSenderConfig(env="CartPole-v1", num_workers=0).build(execution_plan=module.execution_plan)


def test_cross_entropy_solves_cartpole_on_both_engines_alike(ray_cluster):
    module = example("cross_entropy")
    reached = []
    for engine in ("serial", "ray"):
        config = module.CrossEntropyConfig(env="CartPole-v1", engine=engine, seed=0)
        with config.build(execution_plan=module.execution_plan) as trainer:
            result = trainer.train_until(episode_return_mean=400, num_steps_sampled=100_000)
            reached.append((result["num_steps_sampled"], result["episode_return_mean"], trainer.evaluate(20)["episode_return_mean"]))
    assert reached[0] == reached[1], "a plan with a barrier gives the same on both engines"
    assert reached[0][1] >= 400 and reached[0][2] >= 475
