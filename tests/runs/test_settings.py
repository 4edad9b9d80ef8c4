"""Settings in a file, on a command line and in a run's config.json are the same thing."""

import json

import pytest

import flowrl as fl
from flowrl.errors import ConfigError
from flowrl.runs.settings import RunSettings, read_settings
from flowrl.runs.stopping import StopConditions

OWN = """
import flowrl as fl
from flowrl.algorithms import ppo
class MyConfig(fl.PPOConfig):
    pass
class MyEnv:
    pass
def execution_plan(workers, config):
    return ppo.execution_plan(workers, config)
small = MyConfig(env=MyEnv, train_batch_size=300)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(OWN)
    return tmp_path


def resolve(algorithm=None, config=None, **changes):
    return RunSettings.resolve(algorithm, config, changes)


def test_an_algorithm_and_changes_are_enough():
    settings = resolve("ppo", env="CartPole-v1", lr=1e-3, stop_return=475, stop_steps=1e5)
    assert type(settings.config) is fl.PPOConfig
    assert (settings.config.lr, settings.config.env, settings.env_name) == (1e-3, "CartPole-v1", "CartPole-v1")
    assert settings.stop == StopConditions(475, 100_000)


def test_a_settings_file_names_all_of_it_and_changes_win(here):
    (here / "s.json").write_text(json.dumps({"algorithm": "ppo", "env": "CartPole-v1", "lr": 0.1, "stop_steps": 10}))
    settings = resolve(None, "s.json", lr=0.2, stop_return=3)
    assert (settings.algorithm.name, settings.config.lr, settings.stop) == ("ppo", 0.2, StopConditions(3, 10))


def test_the_algorithm_of_the_command_line_wins_over_the_file_s(here):
    (here / "s.json").write_text(json.dumps({"algorithm": "ppo", "env": "CartPole-v1"}))
    assert type(resolve("a2c", "s.json").config) is fl.A2CConfig


@pytest.mark.parametrize(
    ("algorithm", "config"),
    [
        ("ppo", None),
        ("my.py", None),
        ("my.py:execution_plan", "my.py:MyConfig"),
        (None, "my.py:small"),
        (None, "my.py"),
        ("ppo", "my.py:MyConfig"),
    ],
)
def test_what_config_json_holds_gives_the_same_run_again(algorithm, config, here):
    settings = resolve(algorithm, config, hiddens=[8, 8], stop_return=1.5)
    (here / "config.json").write_text(json.dumps(settings.to_dict(), allow_nan=False))
    again = resolve(None, "config.json")
    assert again.to_dict() == settings.to_dict()
    assert again.config.to_dict() == settings.config.to_dict()
    assert (again.algorithm.plan, type(again.config), again.stop) == (settings.algorithm.plan, type(settings.config), settings.stop)


def test_config_json_is_flat_and_names_an_own_class_only(here):
    assert list(resolve("ppo", env="CartPole-v1", stop_steps=5).to_dict())[:3] == ["algorithm", "stop_steps", "env"]
    own = resolve(None, "my.py:small").to_dict()
    assert (own["algorithm"], own["config"], own["env"]) == ("my.py:execution_plan", "my.py:MyConfig", "my.py:MyEnv")


def test_an_instance_keeps_its_settings_and_takes_changes(here):
    settings = resolve(None, "my.py:small", lr=0.5)
    assert (settings.config.train_batch_size, settings.config.lr, settings.env_name) == (300, 0.5, "MyEnv")
    assert settings.algorithm.name == "my.py:execution_plan"


def test_a_config_of_flowrl_names_its_algorithm_by_itself():
    assert resolve(None, "flowrl:A2CConfig").algorithm.name == "a2c"


def test_the_folder_of_a_run_stands_for_its_config_json(here):
    (here / "run").mkdir()
    (here / "run" / "config.json").write_text('{"algorithm": "ppo"}')
    assert read_settings(here / "run") == {"algorithm": "ppo"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"algorithm": "ppo", "lrr": 3}', "PPOConfig has no setting 'lrr'. Did you mean 'lr'?"),
        ('{"algorithm": "ppo", "stop_retrun": 3}', "PPOConfig has no setting 'stop_retrun'. Did you mean 'stop_return'?"),
        ('{"algorithm": "ppo", "lr": "abc"}', "lr='abc': expected a finite number, 0.0 or more"),
        ('{"algorithm": "ppo", "env": "my.py:MyEnvv"}', "my.py has no 'MyEnvv'. Did you mean 'MyEnv'?"),
        ('{"algorithm": "pp0"}', "there is no algorithm 'pp0'. Did you mean 'ppo'?"),
        ('{"algorithm": 3}', "algorithm=3: expected a text"),
        ('{"algorithm": "ppo", "config": "my.py:MyConfg"}', "my.py has no 'MyConfg'. Did you mean 'MyConfig'?"),
        ('{"algorithm": "ppo", "config": "my.py:MyEnv"}', "my.py:MyEnv is no config: expected a subclass of AlgorithmConfig"),
        ('{"algorithm": "ppo", "stop_steps": "many"}', "stop_steps='many': expected a whole number, 1 or more"),
        ('{"algorithm": "ppo", "stop_steps": 1.5}', "stop_steps=1.5: expected a whole number, 1 or more"),
        ('{"algorithm": "ppo", "stop_return": true}', "stop_return=True: expected a finite number"),
        ('{"algorithm": "ppo", "stop_return": NaN}', "stop_return=nan: expected a finite number"),
        ('{"lr": 3}', "which algorithm?"),
        ('{"algorithm": "ppo",\n "lr" 3}', "s.json:2: not JSON, Expecting ':' delimiter at column 7"),
        ("[1]", "s.json: expected one JSON object of settings, got list"),
        ("\xff", "not JSON"),
    ],
)
def test_what_is_wrong_in_a_settings_file_is_told_in_one_line(text, says, here):
    (here / "s.json").write_text(text)
    with pytest.raises(ConfigError) as error:
        resolve(None, "s.json")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_settings_file_that_is_not_there_names_the_nearest(here):
    (here / "cartpole.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"there is no settings file cartpol.json. Did you mean 'cartpole.json'\?"):
        resolve("ppo", "cartpol.json")
    with pytest.raises(ConfigError, match="there is no settings file nowhere/x"):
        resolve("ppo", "nowhere/x.json")
