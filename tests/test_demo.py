"""The demo leaves what it says, and overwrites nothing."""

import json
import math
import xml.etree.ElementTree as ElementTree

import pytest

from flowrl import demo


@pytest.fixture
def short_demo(monkeypatch):
    """The demo as it is, but solved early and on the serial engine."""
    monkeypatch.setattr(demo, "CONFIG", demo.CONFIG.replace(engine="serial"))
    monkeypatch.setattr(demo, "TARGET_RETURN", 40.0)


def test_the_demo_leaves_picture_curve_metrics_and_config_and_says_what_it_reached(short_demo, tmp_path, capsys):
    demo.main(tmp_path / "runs")
    (folder,) = (tmp_path / "runs").iterdir()
    said = capsys.readouterr().out
    for name in ("plan.svg", "curve.png", "progress.jsonl", "config.json", "policy.safetensors"):
        assert (folder / name).stat().st_size > 0
        assert name in said
    assert "reached a return of" in said
    assert ElementTree.parse(folder / "plan.svg").getroot().tag.endswith("svg")
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "config.json").read_text())["env"] == "CartPole-v1"
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    assert lines[-1]["episode_return_mean"] >= 40
    assert [line["training_iteration"] for line in lines] == list(range(1, len(lines) + 1))


def test_a_demo_that_does_not_get_there_says_so(short_demo, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "MAX_STEPS", 1000)
    monkeypatch.setattr(demo, "TARGET_RETURN", 475.0)
    with pytest.raises(SystemExit, match="not solved"):
        demo.main(tmp_path)


def test_folders_are_never_shared(tmp_path, monkeypatch):
    monkeypatch.setattr(demo.time, "strftime", lambda pattern: "now")
    assert [demo.new_folder(tmp_path).name for _ in range(3)] == ["ppo-CartPole-v1-now", "ppo-CartPole-v1-now-2", "ppo-CartPole-v1-now-3"]


def test_nan_and_infinity_become_null():
    assert demo.without_nan({"a": math.nan, "b": [1.0, math.inf], "c": "x"}) == {"a": None, "b": [1.0, None], "c": "x"}
