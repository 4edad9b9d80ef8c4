"""`flowrl train`: what it leaves, how it ends, and that its settings give the same run again."""

import json

import pytest

from flowrl.trainer import load_policy

OWN = ["train", "my.py", "--env", "my.py:Five"]
FILES = {"config.json", "progress.jsonl", "curve.png", "plan.svg", "policy.safetensors", "policy.json"}


def results_of(folder):
    return [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]


def files_of(folder):
    """The names of a run's files; TensorBoard's as "events"."""
    return {"events" if path.name.startswith("events.out.tfevents") else path.name for path in folder.iterdir()}


def test_a_run_leaves_its_files_and_says_where_and_what_it_reached(here, flowrl):
    code, out, err = flowrl(*OWN, "--stop-steps", 300, "--run", "first", "--seed", 3, "--set", "lr=1e-2")
    assert (code, err) == (0, "")
    assert files_of(here / "runs" / "first") == {*FILES, "events"}
    results = results_of(here / "runs" / "first")
    assert [result["num_steps_sampled"] for result in results] == [100, 200, 300]
    assert out.splitlines()[0] == "my.py:execution_plan on Five, no workers, engine serial, until 300 env steps"
    assert "all env steps taken: a mean return of 5.0 after 300 env steps" in out
    assert all(f"  {name}" in out for name in FILES - {"policy.json"})
    settings = json.loads((here / "runs" / "first" / "config.json").read_text())
    assert (settings["algorithm"], settings["config"], settings["env"]) == ("my.py:execution_plan", "my.py:MyConfig", "my.py:Five")
    assert (settings["seed"], settings["lr"], settings["stop_steps"]) == (3, 0.01, 300)
    assert load_policy(here / "runs" / "first").compute_action([0.0, 0.0]) in (0, 1)


def test_a_run_s_config_json_repeats_it(here, flowrl):
    first = ["train", "ppo", "--env", "CartPole-v1", "--stop-steps", 600, "--set", "train_batch_size=200", "--set", "hiddens=[8]"]
    assert flowrl(*first, "--run", "first").code == 0
    assert flowrl("train", "--config", "runs/first/config.json", "--run", "again").code == 0
    one, two = (
        [{name: value for name, value in result.items() if name not in ("info", "time_s", "steps_per_s")} for result in results_of(folder)]
        for folder in (here / "runs" / "first", here / "runs" / "again")
    )
    assert one == two and len(one) == 3
    one, two = ((here / "runs" / name / "policy.safetensors").read_bytes() for name in ("first", "again"))
    assert one == two


def test_options_win_over_a_settings_file(here, flowrl):
    (here / "s.json").write_text(json.dumps({"algorithm": "ppo", "env": "CartPole-v1", "train_batch_size": 100, "stop_steps": 10**9}))
    assert flowrl("train", "--config", "s.json", "--env", "my.py:Five", "--stop-steps", 100, "--run", "x").code == 0
    settings = json.loads((here / "runs" / "x" / "config.json").read_text())
    assert (settings["env"], settings["stop_steps"], settings["train_batch_size"]) == ("my.py:Five", 100, 100)


def test_it_ends_when_the_mean_return_is_reached(here, flowrl):
    code, out, _ = flowrl(*OWN, "--stop-return", 5, "--stop-steps", 10_000, "--run", "x")
    assert code == 0
    assert "reached: a mean return of 5.0 after 100 env steps" in out


def test_a_return_that_was_not_reached_is_told(here, flowrl):
    code, out, _ = flowrl(*OWN, "--stop-return", 6, "--stop-steps", 200)
    assert code == 0
    assert "all env steps taken: a mean return of 5.0 (6 was asked for) after 200 env steps" in out
    (folder,) = (here / "runs").iterdir()
    assert folder.name.startswith("my-Five-")


def test_before_the_first_finished_episode_there_is_a_dash_and_null_in_the_file(here, flowrl):
    code, out, _ = flowrl(*OWN, "--set", 'env_config={"length": 1000}', "--stop-steps", 100, "--run", "x")
    assert code == 0
    assert "       100 steps  return -  0 episodes" in out
    assert "no episode finished after 100 env steps" in out
    assert results_of(here / "runs" / "x")[0]["episode_return_mean"] is None


def test_a_plan_that_ends_by_itself_ends_the_run(here, flowrl):
    code, out, _ = flowrl("train", "my.py:plan_that_ends", "--env", "my.py:Five", "--run", "x")
    assert code == 0
    assert "the plan came to its end: no episode finished after 2 env steps" in out
    assert len(results_of(here / "runs" / "x")) == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_user_s_error_is_shown_as_theirs_and_the_files_are_kept(workers, here, flowrl, request):
    if workers:
        request.getfixturevalue("ray_cluster")
    more = ["--workers", workers, "--set", 'env_config={"explodes_at": 250}', "--run", "x"]
    code, out, err = flowrl(*OWN, *more)
    assert code == 1
    lines = (here / "my.py").read_text().splitlines()
    step, explode = (1 + lines.index(f"        {line}") for line in ("    self.explode()", 'raise RuntimeError("boom in the env")'))
    frames = [line.strip() for line in err.splitlines() if line.startswith("  File")]
    assert frames == [f'File "{here}/my.py", line {step}, in step', f'File "{here}/my.py", line {explode}, in explode']
    assert "RuntimeError: boom in the env" in err
    assert f"of worker {workers}" in err and "ParallelRollouts() at ppo.py:" in err
    assert "runs/x holds" in out
    assert files_of(here / "runs" / "x") == {*FILES, "events"}
    assert [result["num_steps_sampled"] for result in results_of(here / "runs" / "x")] == [100, 200]


def test_ctrl_c_ends_a_run_with_all_its_files(here, flowrl):
    code, out, err = flowrl(*OWN, "--set", 'env_config={"ctrl_c_at": 250}', "--run", "x")
    assert (code, err) == (130, "")
    assert "stopped by Ctrl-C: a mean return of 5.0 after 200 env steps" in out
    assert files_of(here / "runs" / "x") == {*FILES, "events"}
    assert [result["num_steps_sampled"] for result in results_of(here / "runs" / "x")] == [100, 200]


def test_ctrl_c_before_the_first_result_leaves_files_that_can_be_read(here, flowrl):
    code, out, _ = flowrl(*OWN, "--set", 'env_config={"ctrl_c_at": 1}', "--run", "x")
    assert code == 130
    assert "stopped by Ctrl-C, before the first result" in out
    assert results_of(here / "runs" / "x") == []
    assert (here / "runs" / "x" / "curve.png").read_bytes().startswith(b"\x89PNG")
