"""Where a run lies, and that nothing is overwritten."""

import pytest

from flowrl.errors import ConfigError
from flowrl.runs.folder import RunFolder, default_name, find_run


def test_a_named_run_gets_its_folder_and_all_above_it(tmp_path):
    folder = RunFolder.create(tmp_path / "a" / "b", "first-run_1.0", "unused")
    assert folder.path == tmp_path / "a" / "b" / "first-run_1.0"
    assert folder.path.is_dir()


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "/tmp/x", "a\\b", ".hidden", "-x", "a..b", "a b", "a\n", "a\0b", "x" * 101])
def test_names_that_could_lie_elsewhere_or_be_mistaken_are_refused(name, tmp_path):
    with pytest.raises(ConfigError, match="expected a plain name, letters and digits first"):
        RunFolder.create(tmp_path / "runs", name, "unused")
    assert not (tmp_path / "runs").exists()


def test_a_name_that_is_taken_is_refused_and_its_files_stay(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("precious")
    with pytest.raises(ConfigError, match="mine is there already and nothing is overwritten: choose another name, or move it away"):
        RunFolder.create(tmp_path, "mine", "unused")
    assert (tmp_path / "mine" / "config.json").read_text() == "precious"


def test_without_a_name_each_run_has_a_folder_of_its_own(tmp_path):
    assert [RunFolder.create(tmp_path, None, "ppo-now").path.name for _ in range(3)] == ["ppo-now", "ppo-now-2", "ppo-now-3"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot make the folder .*file/x: Not a directory"):
        RunFolder.create(tmp_path / "file", "x", "unused")


@pytest.mark.parametrize(
    ("algorithm", "env", "expected"),
    [
        ("ppo", "CartPole-v1", "ppo-CartPole-v1-now"),
        ("ppo", "ALE/Pong-v5", "ppo-ALE-Pong-v5-now"),
        ("ppo", "ale_py:ALE/Pong-v5", "ppo-ale_py-ALE-Pong-v5-now"),
        ("my", "<lambda>", "my-lambda-now"),
        ("my", "../../etc", "my-etc-now"),
        ("my", "Ünïcode", "my-n-code-now"),
    ],
)
def test_a_run_without_a_name_is_called_after_algorithm_env_and_time(algorithm, env, expected, tmp_path):
    name = default_name(algorithm, env, now=lambda _: "now")
    assert name == expected
    RunFolder.create(tmp_path, name, "unused")  # a name that would be allowed


def test_the_default_name_of_a_very_long_env_still_fits(tmp_path):
    RunFolder.create(tmp_path, default_name("ppo", "x" * 500), "unused")


def run_in(runs, name):
    (runs / name).mkdir(parents=True)
    (runs / name / "config.json").write_text("{}")
    return runs / name


def test_a_run_is_found_by_its_name_and_by_its_folder(tmp_path, monkeypatch):
    path = run_in(tmp_path / "runs", "first")
    monkeypatch.chdir(tmp_path)
    assert find_run("first", tmp_path / "runs").path == path
    assert find_run(str(path), tmp_path / "elsewhere").path == path
    assert find_run("runs/first", tmp_path / "runs").path.resolve() == path


def test_a_run_that_is_not_there_names_the_nearest(tmp_path):
    for name in ("cartpole-1", "pendulum-1"):
        run_in(tmp_path, name)
    with pytest.raises(ConfigError, match=r"there is no run 'cartpol-1' in .* Did you mean 'cartpole-1'\?"):
        find_run("cartpol-1", tmp_path)
    with pytest.raises(ConfigError, match="There are none in nowhere"):
        find_run("x", type(tmp_path)("nowhere"))


def test_a_folder_without_settings_is_no_run(tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="other is no run"):
        find_run("other", tmp_path)
