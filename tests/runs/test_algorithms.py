"""What a command line means by an algorithm."""

import sys
import textwrap

import pytest

import flowrl as fl
import flowrl.algorithms
from flowrl.algorithms import a2c, ppo
from flowrl.errors import ConfigError
from flowrl.runs.algorithms import find_algorithm, known_algorithms, plan_of


def write(path, text):
    path.write_text(textwrap.dedent(text))
    return path


OWN = """
    import flowrl as fl
    class MyConfig(fl.PPOConfig):
        pass
    def execution_plan(workers, config):
        return fl.algorithms.ppo.execution_plan(workers, config)
    def another_plan(workers, config):
        return None
    three = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_prebuilt_ones_are_known_by_their_files():
    assert {"ppo", "a2c"} <= set(known_algorithms())
    assert known_algorithms()["a2c"].startswith("A2C: ")
    assert find_algorithm("ppo").plan is ppo.execution_plan
    assert find_algorithm("a2c").config_class() is a2c.A2CConfig
    assert find_algorithm("ppo").short_name == "ppo"


def test_adding_a_file_is_enough_for_an_algorithm_to_be_known(tmp_path, monkeypatch):
    monkeypatch.setattr(flowrl.algorithms, "__path__", [str(tmp_path)])
    write(
        tmp_path / "fresh.py",
        '''
        """Fresh: an algorithm that was not there before.

        More about it.
        """
        import flowrl as fl
        class FreshConfig(fl.PPOConfig):
            pass
        def execution_plan(workers, config):
            return "the plan"
        ''',
    )
    write(tmp_path / "helpers.py", "def f(): pass")
    assert known_algorithms() == {"fresh": "Fresh: an algorithm that was not there before."}
    try:
        algorithm = find_algorithm("fresh")
        assert algorithm.plan(None, None) == "the plan"
        assert algorithm.config_class().__name__ == "FreshConfig"
    finally:
        sys.modules.pop("flowrl.algorithms.fresh", None)


def test_a_plan_of_a_file_is_found_and_its_only_config_class(here):
    write(here / "my.py", OWN)
    algorithm = find_algorithm("my.py:another_plan")
    assert algorithm.plan.__name__ == "another_plan"
    assert algorithm.config_class().__name__ == "MyConfig"
    assert (algorithm.short_name, algorithm.is_prebuilt) == ("my", False)


def test_a_file_alone_stands_for_its_execution_plan(here):
    write(here / "my.py", OWN)
    assert find_algorithm("my.py").name == "my.py:execution_plan"


def test_a_file_that_defines_no_config_takes_the_only_one_that_it_imports(here):
    write(here / "my.py", "from flowrl.algorithms.ppo import PPOConfig\ndef execution_plan(workers, config): ...")
    assert find_algorithm("my.py").config_class() is fl.PPOConfig


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pp0", "there is no algorithm 'pp0'. Did you mean 'ppo'?"),
        ("PPO", "there is no algorithm 'PPO'. Did you mean 'ppo'?"),
        ("nothing like it", "There is: a2c, "),
        ("my.py:execution_plam", "my.py has no 'execution_plam'. Did you mean 'execution_plan'?"),
        ("mi.py:execution_plan", "there is no file mi.py. Did you mean 'my.py'?"),
        ("my.py:three", "my.py:three is int: expected a function that makes a plan"),
        ("my.py:MyConfig", "my.py:MyConfig is a config class: name the plan, my.py:execution_plan say, and add --config my.py:MyConfig"),
        ("no_such_module:plan", "there is no module 'no_such_module'"),
    ],
)
def test_a_wrong_name_is_told_with_the_nearest_right_one(text, says, here):
    write(here / "my.py", OWN)
    with pytest.raises(ConfigError) as error:
        find_algorithm(text)
    assert says in str(error.value)


def test_a_file_with_no_config_class_or_with_two_says_what_to_do(here):
    write(here / "none.py", "def execution_plan(workers, config): ...")
    write(here / "two.py", "import flowrl as fl\nclass A(fl.PPOConfig): ...\nclass B(fl.PPOConfig): ...\ndef execution_plan(w, c): ...")
    with pytest.raises(ConfigError, match=r"none.py has no config class: define one .* or name one, --config flowrl:PPOConfig say"):
        find_algorithm("none.py").config_class()
    with pytest.raises(ConfigError, match=r"two.py has 2 config classes \(A, B\): name one, --config two.py:A say"):
        find_algorithm("two.py").config_class()


def test_the_plan_of_a_config_is_the_one_beside_it_or_below_its_class(here):
    write(here / "my.py", OWN)
    write(here / "settings.py", "import flowrl as fl\nclass Mine(fl.A2CConfig): ...")
    assert plan_of(find_algorithm("my.py").config_class(), "my.py") == "my.py:execution_plan"
    assert plan_of(fl.PPOConfig, "flowrl") == "ppo"
    assert plan_of(fl.A2CConfig, "settings.py") == "a2c"
    assert plan_of(fl.AlgorithmConfig, "flowrl") is None
