import sys
from pathlib import Path

import pytest

from flowrl.errors import ConfigError
from flowrl.references import find, load_module, reference_to
from tests.envs import CountEnv


@pytest.fixture
def my_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    Path("beside.py").write_text("VALUE = 7\n")
    file = Path("mine.py")
    file.write_text("from beside import VALUE\nclass Env:\n    class Inner: pass\n")
    return file


def test_a_module_and_a_name_in_it_are_found():
    assert find("tests.envs:CountEnv") is CountEnv
    assert reference_to(CountEnv) == "tests.envs:CountEnv"


def test_a_file_is_loaded_once_and_its_classes_are_named_by_it(my_file):
    env = find("mine.py:Env")
    assert find(f"{my_file.resolve()}:Env") is env
    assert reference_to(env) == "mine.py:Env"
    assert find("mine.py:Env.Inner") is env.Inner
    assert load_module("mine.py").VALUE == 7  # what lies beside a file can be imported by it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tests.envs:CuontEnv", "tests.envs has no 'CuontEnv'. Did you mean 'CountEnv'?"),
        ("mine.py:Evn", "mine.py has no 'Evn'. Did you mean 'Env'?"),
        ("mnie.py:Env", "Did you mean 'mine.py'?"),
        ("no.such.module:Env", "there is no module 'no.such.module'"),
        ("Env", "write module:name"),
        (":Env", "write module:name"),
    ],
)
def test_what_is_not_there_is_said_with_the_nearest(my_file, text, message):
    with pytest.raises(ConfigError) as caught:
        find(text)
    assert message in str(caught.value)


def test_an_error_of_a_users_file_is_the_users_own_and_the_next_load_reads_it_anew(my_file):
    my_file.write_text("import nothing_of_this_name\n")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        find("mine.py:Env")
    my_file.write_text("class Env: pass\n")
    assert find("mine.py:Env").__name__ == "Env"


def test_what_lies_beside_a_loaded_file_is_named_by_its_file(my_file):
    Path("beside.py").write_text("class Other: pass\n")
    my_file.write_text("from beside import Other\n")
    other = find("mine.py:Other")
    assert reference_to(other) == "beside.py:Other"
    assert find("beside.py:Other").__name__ == "Other"


def test_a_helper_of_another_folder_is_not_taken_for_the_one_beside(my_file):
    find("mine.py:Env")  # loads beside
    other = Path("other")
    other.mkdir()
    (other / "beside.py").write_text("VALUE = 8\nclass Thing: pass\n")
    (other / "second.py").write_text("import beside\n")
    with pytest.raises(ConfigError, match=r"second\.py imports 'beside', which is .*beside\.py already"):
        load_module("other/second.py")


def test_what_is_not_the_users_never_travels_by_value(tmp_path, python):
    """Also where Python's own modules, or flowrl's, lie below the file's folder and are first loaded by it."""
    said = python(
        """
        import cloudpickle, pathlib, sys
        from flowrl.references import load_module
        path = pathlib.Path(sys.argv[1]) / "top.py"
        path.write_text("import statistics, flowrl.iter, flowrl.algorithms.ppo")
        before = set(sys.modules)
        load_module(str(path))
        print(sorted(cloudpickle.list_registry_pickle_by_value()))
        """,
        str(tmp_path),
    )
    assert eval(said) == ["flowrl_file_top_0"]


@pytest.mark.parametrize("text", ["..:x", "a..b:x", "a/b:x"])
def test_a_module_that_is_none_is_told(text):
    with pytest.raises(ConfigError, match="is no module"):
        find(text)
