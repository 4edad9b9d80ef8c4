import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass

import pytest

from flowrl.config import AlgorithmConfig
from flowrl.errors import ConfigError
from tests.envs import CountEnv


@dataclass(frozen=True, kw_only=True, eq=False)
class MyConfig(AlgorithmConfig):
    buffer_size: int = 100
    lr: float = 1e-2


def test_a_config_is_a_read_only_mapping_of_its_fields():
    config = MyConfig(env="CartPole-v1", buffer_size=7)
    assert (config["buffer_size"], config.buffer_size, config.get("nothing", 3)) == (7, 7, 3)
    assert "lr" in config and "beta" not in config
    assert dict(config)["lr"] == 1e-2
    assert len(config) == len(list(config)) == len(dict(config))
    with pytest.raises(TypeError):
        config["lr"] = 1.0


@pytest.mark.parametrize("name", ["lr", "buffer_size", "anything"])
def test_a_config_cannot_be_changed(name):
    with pytest.raises(FrozenInstanceError, match=rf"config\.replace\({name}=\.\.\.\) gives a changed copy"):
        setattr(AlgorithmConfig(), name, 1.0)
    for change in (lambda config: setattr(config, name, 1.0), lambda config: delattr(config, name)):
        with pytest.raises(FrozenInstanceError):  # a class that its author decorated too
            change(MyConfig())


def test_a_subclass_is_a_dataclass_without_being_decorated():
    class Mine(MyConfig):
        lr: float = 0.5
        mine: int = 3

    assert (Mine().lr, Mine(mine=4)["mine"], Mine().replace(mine=5).mine, len(Mine())) == (0.5, 4, 5, len(MyConfig()) + 1)
    with pytest.raises(TypeError, match="no setting 'mien'"):
        Mine(mien=3)


def test_replace_gives_a_changed_and_checked_copy():
    config = MyConfig(num_workers=2)
    assert (config.replace(lr=0.5).lr, config.lr, config.replace(lr=0.5).num_workers) == (0.5, 1e-2, 2)
    with pytest.raises(ValueError, match=r"gamma=2\.0"):
        config.replace(gamma=2.0)


def test_an_unknown_key_names_the_nearest_field():
    with pytest.raises(KeyError, match=r"MyConfig has no setting 'bufer_size'\. Did you mean 'buffer_size'"):
        MyConfig()["bufer_size"]


@pytest.mark.parametrize("make", [MyConfig, MyConfig().replace])
def test_an_unknown_keyword_names_the_nearest_field(make):
    with pytest.raises(TypeError, match=r"no setting 'num_worker'\. Did you mean 'num_workers'"):
        make(num_worker=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": -1}, "num_workers=-1: expected a whole number, 0 or more"),
        ({"num_workers": 1.5}, "num_workers=1.5"),
        ({"num_envs": 0}, "num_envs=0: expected a whole number, 1 or more"),
        ({"rollout_fragment_length": True}, "rollout_fragment_length=True"),
        ({"engine": "spark"}, 'engine=\'spark\': expected "serial", "ray" or None'),
        ({"gamma": 1.01}, "gamma=1.01: expected a number from 0.0 to 1.0"),
        ({"lr": float("nan")}, "lr=nan: expected a finite number, 0.0 or more"),
        ({"lr": "3e-4"}, "lr='3e-4'"),
        ({"hiddens": (64, 0)}, r"hiddens=\(64, 0\)"),
        ({"hiddens": 64}, "hiddens=64: expected a tuple"),
        ({"env_config": 3}, "env_config=3: expected a dict"),
        ({"grad_clip": 0.0}, "grad_clip=0.0: expected more than 0, or None"),
        ({"env": 3}, "env=3: expected a gymnasium id"),
    ],
)
def test_a_wrong_setting_says_the_value_and_what_was_expected(settings, message):
    with pytest.raises(ValueError, match=message):
        MyConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "name"), [({}, "serial"), ({"num_workers": 1}, "ray"), ({"num_workers": 1, "engine": "serial"}, "serial")]
)
def test_the_engine_is_serial_without_workers_else_ray_unless_said(settings, name):
    assert MyConfig(**settings).engine_name == name


def test_the_caller_keeps_an_env_config_of_his_own():
    mine = {"length": 3}
    config = MyConfig(env_config=mine)
    mine["length"] = 4
    assert config.env_config == {"length": 3}


def test_a_config_survives_pickling():
    config = MyConfig(env="CartPole-v1", lr=0.5)
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_config_becomes_json():
    plain = json.loads(json.dumps(MyConfig(env=CountEnv, hiddens=[8]).to_dict()))
    assert (plain["env"], plain["hiddens"], plain["grad_clip"]) == ("tests.envs:CountEnv", [8], None)


def test_a_config_without_a_policy_says_how_to_name_one():
    with pytest.raises(NotImplementedError, match="MyConfig names no policy: define make_policy"):
        MyConfig().make_policy(None, None, None)


def test_batches_and_configs_load_neither_torch_nor_gymnasium():
    code = "import sys, flowrl.batch, flowrl.config; sys.exit(bool({'torch', 'gymnasium', 'ray'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_come_back_from_their_plain_form():
    config = MyConfig(env=CountEnv, env_config={"length": 3}, hiddens=(8,), lr_schedule=[(0, 1e-2), (100, 0.0)], model=make_model)
    plain = json.loads(json.dumps(config.to_dict(), allow_nan=False))
    assert (plain["env"], plain["model"], plain["lr_schedule"]) == (
        "tests.envs:CountEnv",
        "tests.test_config:make_model",
        [[0, 0.01], [100, 0.0]],
    )
    again = MyConfig.from_dict(plain)
    assert dict(again) == dict(config)


@pytest.mark.parametrize("env", ["CartPole-v1", "my_module:CartPole-v1", "ALE/Pong-v5"])
def test_a_gymnasium_id_stays_a_text(env):
    assert MyConfig.from_dict({"env": env}).env == env


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bufer_size": 3}, "MyConfig has no setting 'bufer_size'. Did you mean 'buffer_size'?"),
        ({"env": "tests.envs:CuontEnv"}, "tests.envs has no 'CuontEnv'. Did you mean 'CountEnv'?"),
        ({"env": "tests.envs:<lambda>"}, "cannot be found again"),
        ({"lr": "abc"}, "lr='abc': expected a finite number, 0.0 or more"),
        ({"lr_schedule": [[10, 1e-3], [0, 0]]}, "expected points (env steps, value) in rising order"),
        ({"lr_schedule": [[0, -1e-3]]}, "values of 0.0 or more"),
        ({"model": "MyNet"}, "model='MyNet': expected a class or function"),
        ({"observation_filter": "MeanStd"}, '"NoFilter" or "MeanStdFilter"'),
        ({"normalize_rewards": 1}, "normalize_rewards=1: expected true or false"),
        ({"resources_per_worker": "x"}, "resources_per_worker='x': expected a dict"),
        ({"seed": 2**64}, "expected a whole number below 2**63"),
        ({"hiddens": [True]}, "hiddens=[True]: expected a tuple"),
    ],
)
def test_settings_that_do_not_fit_are_refused_as_config_errors(settings, message):
    with pytest.raises(ConfigError) as caught:
        MyConfig.from_dict(settings)
    assert message in str(caught.value)


def test_whole_numbers_may_be_written_as_floats_in_a_file():
    config = MyConfig.from_dict({"train_batch_size": 1e3, "lr": 1.0})
    assert (config.train_batch_size, type(config.train_batch_size), type(config.lr)) == (1000, int, float)


def test_settings_without_their_names_are_refused():
    with pytest.raises(TypeError, match=r"MyConfig\('CartPole-v1'\): settings are keywords"):
        MyConfig("CartPole-v1")


def test_a_config_without_a_plan_or_a_policy_says_how_to_name_one():
    with pytest.raises(NotImplementedError, match="MyConfig names no plan: pass build"):
        MyConfig().build()
    with pytest.raises(NotImplementedError, match="MyConfig names no policy"):
        MyConfig().make_policy(None, None, None)


def make_model(observation_space, num_outputs):
    raise NotImplementedError
