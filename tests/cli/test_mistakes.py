"""Everything that can be typed wrong: one line with the nearest right spelling, exit code 2, no traceback, nothing left behind."""

import pytest

TRAIN = ["train", "ppo", "--env", "CartPole-v1"]
OWN = ["train", "my.py", "--env", "my.py:Five"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        # commands and options
        (["trian", "ppo"], "No such command 'trian'. Did you mean 'train'?"),
        ([*TRAIN, "--stop-retrun", "3"], "No such option: --stop-retrun. Did you mean '--stop-return'?"),
        (["eval", "x", "--episode", "3"], "No such option: --episode. Did you mean '--episodes'?"),
        ([*TRAIN, "--stop-steps"], "'--stop-steps' requires an argument"),
        (["train", "ppo", "CartPole-v1"], "unexpected extra argument(s) (CartPole-v1): the env is named by --env"),
        (["eval"], "Missing argument 'RUN'"),
        # values of options
        ([*TRAIN, "--stop-steps", "many"], "'--stop-steps': 'many': expected a whole number, 100_000 or 1e5 say"),
        ([*TRAIN, "--stop-steps", "0"], "stop_steps=0: expected a whole number, 1 or more"),
        ([*TRAIN, "--stop-return", "high"], "'--stop-return': 'high': expected a number"),
        ([*TRAIN, "--workers", "1.5"], "'--workers': '1.5': expected a whole number"),
        ([*TRAIN, "--workers", "-1"], "num_workers=-1: expected a whole number, 0 or more"),
        ([*TRAIN, "--engine", "rya"], "'--engine': there is no engine 'rya'. Did you mean 'ray'?"),
        (["check-env", "CartPole-v1", "--env-config", "3"], "'--env-config': 3: expected a JSON object"),
        # algorithms, plans, configs
        (["train"], "which algorithm?"),
        (["graph"], "which algorithm?"),
        (["train", "pp0", "--env", "CartPole-v1"], "there is no algorithm 'pp0'. Did you mean 'ppo'?"),
        (["train", "my.py:execution_plam"], "my.py has no 'execution_plam'. Did you mean 'execution_plan'?"),
        (["train", "mi.py"], "there is no file mi.py. Did you mean 'my.py'?"),
        (["train", "ppo", "--config", "my.py:MyConfigg"], "my.py has no 'MyConfigg'. Did you mean 'MyConfig'?"),
        (["train", "my.py:no_plan", "--env", "my.py:Five"], "no_plan(workers, config) gave int: expected a stream in the driver"),
        (["train", "my.py:plan_without_results", "--env", "my.py:Five"], "the plan gives SampleBatch, no results: end it with"),
        # settings
        ([*TRAIN, "--set", "lrr=3"], "PPOConfig has no setting 'lrr'. Did you mean 'lr'?"),
        ([*TRAIN, "--set", "learning_rate=3"], "PPOConfig has no setting 'learning_rate'. It is called 'lr' here."),
        ([*TRAIN, "--set", "n_steps=3"], "It is called 'rollout_fragment_length' here."),
        ([*TRAIN, "--set", "stop_retrun=3"], "Did you mean 'stop_return'?"),
        ([*TRAIN, "--env-config", '{"sise": 3}'], "env='CartPole-v1' does not take this env_config"),
        ([*TRAIN, "--set", "lr=abc"], "lr='abc': expected a finite number, 0.0 or more"),
        ([*TRAIN, "--set", "lr"], "--set lr: expected field=value, --set lr=3e-4 say"),
        ([*TRAIN, "--set", "seed=1", "--seed", "2"], "--set seed=1: seed is given twice, also as 2"),
        (["train", "--config", "cartpol.json"], "there is no settings file cartpol.json. Did you mean 'cartpole.json'?"),
        (["train", "--config", "broken.json"], "broken.json:1: not JSON"),
        # envs
        (["train", "ppo"], "which env? Name one: --env CartPole-v1, or --env my.py:MyEnv"),
        (["train", "ppo", "--env", "CartPol-v1"], "gymnasium knows no env 'CartPol-v1'. Did you mean 'CartPole-v1'?"),
        (["train", "ppo", "--env", "cartpole-v1"], "Did you mean 'CartPole-v1'?"),
        (["train", "ppo", "--env", "CartPole"], "Did you mean 'CartPole-v1'?"),
        (["train", "ppo", "--env", "Nothing-v0"], "an env of your own is named my.py:MyEnv"),
        (["train", "ppo", "--env", "ALE/Pong-v5"], "name also the module that has it, MODULE:ALE/Pong-v5"),
        (["train", "ppo", "--env", "no_module:X-v0"], "there is no module 'no_module'"),
        (["train", "ppo", "--env", "my.py:Fiv"], "my.py has no 'Fiv'. Did you mean 'Five'?"),
        (["train", "ppo", "--env", "my.py:small"], "expected a gymnasium id, a class or a function"),
        (["train", "ppo", "--env", "my.py:Speaking"], "expected Box, Discrete"),
        (["check-env", "CartPol-v1"], "Did you mean 'CartPole-v1'?"),
        (["check-env", "my.py:small"], "expected a gymnasium id, or a class or function"),
        # runs
        ([*OWN, "--run", "../x"], "--run '../x': expected a plain name"),
        ([*OWN, "--runs-dir", "my.py"], "cannot make the folder my.py/"),
        (["eval", "fist"], "there is no run 'fist' in runs. Did you mean 'first'?"),
        (["eval", "first"], "there is no policy in runs/first: that run ended before one was written"),
        # pictures
        (["graph", "ppo", "-o", "x.pdf"], "got the suffix '.pdf', expected .mmd, .dot, .svg, .png or .html; name the file 'x.svg', say"),
        (["graph", "ppo", "-o", "my.py/x.svg"], "cannot write my.py/x.svg"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_in_one_line(arguments, says, here, flowrl):
    (here / "cartpole.json").write_text('{"algorithm": "ppo"}')
    (here / "broken.json").write_text("{")
    (here / "runs" / "first").mkdir(parents=True)
    (here / "runs" / "first" / "config.json").write_text("{}")
    code, _, err = flowrl(*arguments)
    assert says in err
    assert code == 2
    assert err.startswith("flowrl: ") and err.count("\n") == 1
    assert [path.name for path in (here / "runs").iterdir()] == ["first"]


def test_a_run_that_is_there_is_not_written_over(here, flowrl):
    (here / "runs" / "mine").mkdir(parents=True)
    code, _, err = flowrl(*OWN, "--run", "mine")
    assert code == 2
    assert "runs/mine is there already and nothing is overwritten" in err
    assert list((here / "runs" / "mine").iterdir()) == []


def test_a_run_that_fails_before_its_first_result_leaves_its_name_free(here, flowrl):
    failing = [*OWN, "--set", 'env_config={"explodes_at": 1}', "--run", "mine"]
    for _ in range(2):
        code, _, err = flowrl(*failing)
        assert code == 1 and "boom in the env" in err
    assert not (here / "runs" / "mine").exists()
