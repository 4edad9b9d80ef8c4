"""The files of a run: complete with what was written, whatever that was and however it ended."""

import json
import math

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from flowrl.runs.curve import CurveFile
from flowrl.runs.folder import RunFolder
from flowrl.runs.recording import Recording
from flowrl.runs.settings import RunSettings
from flowrl.runs.sinks import ProgressLines, TensorBoardEvents


def result(steps, mean=math.nan, **more):
    names = {f"episode_return_{name}": mean for name in ("mean", "min", "max")}
    return {**names, "num_steps_sampled": steps, "info": {"learner": {"kl": np.float32(0.5)}}, **more}


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def events_of(folder):
    (path,) = folder.glob("events.out.tfevents.*")
    return [
        (event.step, value.tag, value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value)
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]


def test_each_result_is_a_line_of_strict_json_on_disk_at_once(tmp_path):
    sink = ProgressLines(tmp_path / "progress.jsonl")
    sink.write(result(np.int64(3), shape=(1, 2)))
    (line,) = lines_of(tmp_path / "progress.jsonl")
    sink.close()
    assert line["episode_return_mean"] is None
    assert (line["num_steps_sampled"], line["shape"], line["info"]) == (3, [1, 2], {"learner": {"kl": 0.5}})


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "progress.jsonl").touch()
    with pytest.raises(FileExistsError):
        ProgressLines(tmp_path / "progress.jsonl")


def test_tensorboard_gets_every_finite_number_over_env_steps(tmp_path):
    sink = TensorBoardEvents(tmp_path)
    sink.write(result(100))
    sink.write(result(200, mean=2.5))
    seen = events_of(tmp_path)
    sink.close()
    assert (100, "info/learner/kl", 0.5) in seen and (200, "info/learner/kl", 0.5) in seen
    assert [(step, value) for step, tag, value in seen if tag == "episode_return_mean"] == [(200, 2.5)]


@pytest.mark.parametrize(
    "results",
    [[], [result(10)], [result(10), result(20)], [result(10, 3.0)], [result(10), result(20, 5.0), result(30, 7.0)], [{"other": 1}]],
    ids=["none", "one without episodes", "two without", "one", "three", "foreign"],
)
@pytest.mark.parametrize("target", [None, 475.0])
def test_the_curve_is_drawn_however_little_there_is(results, target, tmp_path):
    curve = CurveFile(tmp_path / "curve.png", "ppo on CartPole-v1", "mean", target)
    for one in results:
        curve.write(one)
    curve.close()
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def settings():
    return RunSettings.resolve("ppo", None, {"env": "CartPole-v1", "stop_return": 475})


def recording_of(settings, tmp_path):
    return Recording(RunFolder.create(tmp_path, "run", "unused"), settings, settings.config.build().plan)


def test_a_run_has_its_settings_and_its_picture_before_the_first_result(settings, tmp_path):
    with recording_of(settings, tmp_path) as recording:
        assert RunSettings.resolve(None, str(recording.folder.config), {}).to_dict() == settings.to_dict()
        assert "<svg" in recording.folder.plan.read_text()


def test_however_it_ends_all_files_hold_what_was_written(settings, tmp_path):
    with pytest.raises(KeyboardInterrupt), recording_of(settings, tmp_path) as recording:
        recording.write(result(10, 3.0))
        recording.write(result(20, 4.0))
        raise KeyboardInterrupt
    folder = recording.folder
    assert [line["num_steps_sampled"] for line in lines_of(folder.progress)] == [10, 20]
    assert {step for step, _, _ in events_of(folder.path)} == {10, 20}
    assert folder.curve.read_bytes().startswith(b"\x89PNG")
    assert recording.last["num_steps_sampled"] == 20


def test_a_curve_that_cannot_be_drawn_costs_no_other_file(settings, tmp_path):
    recording = recording_of(settings, tmp_path)
    recording.write(result(10, 3.0))
    recording.folder.curve.mkdir()
    with pytest.raises(IsADirectoryError):
        recording.close()
    assert len(lines_of(recording.folder.progress)) == 1
    assert {step for step, _, _ in events_of(recording.folder.path)} == {10}
