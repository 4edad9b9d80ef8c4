"""`list`, `graph`, `check-env`, `eval` and help."""

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import flowrl as fl

SMALL = ["train", "my.py", "--env", "my.py:Five", "--stop-steps", "100"]


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_a_command_there_is_help(arguments, flowrl):
    code, out, _ = flowrl(*arguments)
    assert code == 0
    assert all(command in out for command in ("train", "eval", "graph", "list", "check-env"))


def test_help_of_a_command_names_its_options(flowrl):
    code, out, _ = flowrl("train", "--help")
    assert code == 0
    options = "env set config stop-return stop-steps workers engine seed run runs-dir"
    assert all(f"--{option}" in out for option in options.split())


def test_list_has_a_line_for_each_algorithm(flowrl):
    code, out, _ = flowrl("list")
    assert code == 0
    listed = dict(re.findall(r"^(\w+) +(\S+):", out, re.MULTILINE))
    assert listed == {"a2c": "A2C", "a3c": "A3C", "apex": "Ape-X", "dqn": "DQN", "ppo": "PPO"}


def test_help_and_list_load_nothing_heavy(python):
    out = python(
        """
        import sys
        from flowrl.cli import main
        assert main(["--help"]) == main(["list"]) == main(["train", "--help"]) == 0
        print([name for name in ("torch", "tensorboard", "gymnasium", "matplotlib", "ray") if name in sys.modules])
        """
    )
    assert out.splitlines()[-1] == "[]"


# --- graph ---


def test_a_plan_is_drawn_and_nothing_starts(here, flowrl):
    code, out, _ = flowrl("graph", "ppo", "-o", "pictures/ppo.svg", "--workers", 2)
    assert (code, out) == (0, "ppo is drawn in pictures/ppo.svg\n")
    assert ElementTree.parse(here / "pictures" / "ppo.svg").getroot().tag.endswith("svg")


def test_an_own_plan_is_drawn_in_each_format(here, flowrl):
    for suffix in ("mmd", "dot", "html", "png"):
        assert flowrl("graph", "my.py:execution_plan", "-o", f"p.{suffix}", "--set", "train_batch_size=777").code == 0
        assert (here / f"p.{suffix}").stat().st_size > 0
    assert "777" in (here / "p.mmd").read_text()


def test_without_a_file_the_plan_is_printed(flowrl):
    code, out, _ = flowrl("graph", "--config", "my.py:small")
    assert code == 0
    assert "TrainOneStep(num_sgd_iter=1" in out


def test_an_error_in_an_own_plan_is_shown_with_its_line(flowrl):
    code, _, err = flowrl("graph", "my.py:plan_that_raises", "-o", "p.svg")
    assert code == 1
    assert err.endswith("KeyError: 'in my plan'\n") and "in plan_that_raises" in err and "typer" not in err


# --- check-env ---


def test_an_env_that_fits_passes(flowrl):
    code, out, _ = flowrl("check-env", "CartPole-v1", "--steps", 100)
    assert code == 0
    assert "actions Discrete(2)" in out and "100 with random actions" in out and "FAIL" not in out


@pytest.mark.parametrize(("env", "space"), [("Pendulum-v1", "Box(-2.0, 2.0, (1,), float32)"), ("my.py:Five", "Discrete(2)")])
def test_spaces_are_named(env, space, flowrl):
    code, out, _ = flowrl("check-env", env, "--steps", 10)
    assert code == 0
    assert f"actions {space}" in out


def test_an_env_whose_spaces_flowrl_cannot_train_is_refused_with_what_to_do(flowrl):
    code, out, _ = flowrl("check-env", "my.py:Speaking")
    assert code == 1
    assert (
        "FAIL  made: observation space of <Speaking instance>: Text(" in out and "expected Box, Discrete" in out and "wrap the env" in out
    )


def test_an_env_whose_episodes_do_not_end_is_told(flowrl):
    code, out, _ = flowrl("check-env", "my.py:Five", "--env-config", '{"length": 1000}', "--steps", 50)
    assert code == 0
    assert "no episode ended in them" in out


def test_an_env_that_raises_shows_where(flowrl):
    code, out, _ = flowrl("check-env", "my.py:Five", "--env-config", '{"explodes_at": 7}')
    assert code == 1
    assert "FAIL  steps: RuntimeError: boom in the env" in out
    assert "in explode" in out and "flowrl/env/vector.py" not in out


def test_what_gymnasium_finds_fails_too(here, flowrl):
    (here / "bad.py").write_text((here / "my.py").read_text().replace("super().reset(seed=seed)", "pass"))
    code, out, _ = flowrl("check-env", "bad.py:Five", "--steps", 10)
    assert code == 1
    assert "FAIL  gymnasium's check: " in out and "super().reset(seed=seed)" in out


# --- eval ---


def test_a_run_s_policy_is_played_in_envs_of_its_own(flowrl):
    assert flowrl(*SMALL, "--run", "first").code == 0
    code, out, _ = flowrl("eval", "first", "--episodes", 7)
    assert code == 0
    assert out.splitlines()[0] == "runs/first: 7 episodes, mean length 5.0"
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["return", "mean", "5.00"],
        ["return", "min", "5.00"],
        ["return", "max", "5.00"],
        ["return", "std", "0.00"],
    ]


def test_the_same_seed_gives_the_same_evaluation_and_another_seed_another(flowrl):
    assert flowrl("train", "ppo", "--env", "CartPole-v1", "--stop-steps", 100, "--set", "train_batch_size=100", "--run", "c").code == 0
    first, again, other = (flowrl("eval", "runs/c", "--episodes", 5, "--seed", seed).out for seed in (1, 1, 2))
    assert first == again != other


def test_a_folder_that_a_trainer_saved_is_played_too(here, flowrl):
    with fl.PPOConfig(env="CartPole-v1", train_batch_size=64, rollout_fragment_length=64).build() as trainer:
        trainer.train()
        trainer.save("saved/cartpole")
    code, out, _ = flowrl("eval", "saved/cartpole", "--episodes", "3")
    assert code == 0 and "3 episodes" in out


def test_a_module_that_lies_here_is_found_by_its_name(here, flowrl, monkeypatch):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", ".", str(here))])
    (here / "lies_here.py").write_text((here / "my.py").read_text())
    code, out, _ = flowrl("check-env", "lies_here:Five", "--steps", "10")
    assert code == 0 and "10 with random actions" in out
