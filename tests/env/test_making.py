import numpy as np
import pytest

import flowrl as fl
from flowrl.env import vectorize
from tests.envs import CountEnv


def test_an_id_is_made_with_the_env_config_as_keywords():
    envs = vectorize("CartPole-v1", {"max_episode_steps": 2})
    envs.reset_ended()
    envs.step(np.array([0]))
    assert envs.step(np.array([1]))[1] == [(0, False, True)]
    envs.close()


def test_a_function_gets_the_env_config_and_whose_env_it_is_for():
    seen = []

    def make(config):
        seen.append((dict(config), config.worker_index, config.vector_index))
        return CountEnv(config["length"])

    vectorize(make, {"length": 3}, num_envs=2, worker=5)
    assert seen == [({"length": 3}, 5, 0), ({"length": 3}, 5, 1)]


def test_a_class_is_called_with_the_env_config():
    class FromConfig(CountEnv):
        def __init__(self, config):
            super().__init__(**config)

    assert vectorize(FromConfig, {"length": 4}).envs[0].length == 4


@pytest.mark.parametrize(("env", "message"), [(None, "name a gymnasium id"), (lambda config: 3, r"made int: expected a gymnasium\.Env")])
def test_what_is_not_an_env_is_refused(env, message):
    with pytest.raises(ValueError, match=message):
        vectorize(env)


def test_envs_made_before_one_that_fails_are_closed():
    closed = []

    class Closing(CountEnv):
        def close(self):
            closed.append(self.ident)

    def make(config):
        if config.vector_index == 2:
            raise OSError("no third one")
        return Closing(3, ident=config.vector_index)

    with pytest.raises(OSError, match="no third one"):
        vectorize(make, num_envs=3)
    assert sorted(closed) == [0, 1]


def test_an_id_that_nobody_registered_is_refused_with_the_nearest():
    with pytest.raises(fl.ConfigError, match=r"env='CartPoll-v1': .*Did you mean 'CartPole-v1'\?"):
        vectorize("CartPoll-v1")


def test_an_env_config_that_the_env_does_not_take_is_said():
    with pytest.raises(fl.ConfigError, match=r"env='CartPole-v1' does not take this env_config: .*'gravity'"):
        vectorize("CartPole-v1", {"gravity": 1})


class Plain(CountEnv):
    """As gymnasium's own classes: keywords, each with a default."""

    def __init__(self, length=4, render_mode=None):
        super().__init__(length)


class WithConfig(CountEnv):
    def __init__(self, env_config=None):
        super().__init__((env_config or {}).get("length", 4))


class Nothing(CountEnv):
    def __init__(self):
        super().__init__(4)


@pytest.mark.parametrize(
    ("env", "env_config", "length"),
    [
        (Plain, None, 4),
        (Plain, {"length": 7}, 7),
        (WithConfig, None, 4),
        (WithConfig, {"length": 7}, 7),
        (Nothing, None, 4),
        (lambda: CountEnv(4), None, 4),
        (lambda settings: CountEnv(settings["length"]), {"length": 7}, 7),
        (lambda length: CountEnv(length), {"length": 7}, 7),
        (lambda *, length: CountEnv(length), {"length": 7}, 7),
    ],
)
def test_a_class_is_called_as_its_first_parameter_asks(env, env_config, length):
    envs = vectorize(env, env_config)
    assert envs.envs[0].length == length
    envs.close()


def test_keywords_that_a_class_does_not_take_are_said():
    with pytest.raises(fl.ConfigError, match=r"Plain.* does not take env_config=\{'lenght': 3\}: .*'lenght'"):
        vectorize(Plain, {"lenght": 3})


def test_an_env_that_changes_its_env_config_changes_nobody_elses():
    def env(config):
        config["lengths"].append(len(config["lengths"]))
        config["more"]["x"] = 2
        return CountEnv(4)

    settings = {"lengths": [0], "more": {"x": 1}}
    vectorize(env, settings, num_envs=3)
    assert settings == {"lengths": [0], "more": {"x": 1}}
