"""A user's traceback is theirs: without flowrl's frames, with the notes."""

import textwrap

import pytest

import flowrl as fl
from flowrl.cli.tracebacks import is_in_users_code, user_traceback


def frames(text):
    return [line.rpartition(" in ")[2] for line in text.splitlines() if line.startswith("  File")]


def raised(call):
    with pytest.raises(Exception) as error:
        call()
    return error.value


def boom(x):
    raise ValueError(f"no {x}")


def test_frames_of_flowrl_are_left_out_and_notes_stay():
    error = raised(lambda: fl.from_iterable([7]).for_each(boom).take(1))
    text = user_traceback(error)
    assert frames(text) == ["raised", "<lambda>", "boom"]
    assert "ValueError: no 7\nin for_each(boom @ test_tracebacks.py:" in text
    assert is_in_users_code(error)


@pytest.mark.parametrize("engine_name", ["serial", "ray"])
def test_an_error_from_a_shard_is_shown_as_it_was_there(engine_name, request):
    with fl.engine(request.getfixturevalue(f"{engine_name}_under_test").inner):
        error = raised(lambda: fl.from_items([7], num_shards=1).for_each(boom).gather_sync().take(1))
    text = user_traceback(error)
    assert frames(text)[-1] == "boom"
    assert "flowrl/iter" not in text and "/ray/" not in text
    assert "ValueError: no 7" in text and "shard 0 of 1, item 7" in text


def test_an_error_that_has_no_frame_of_the_user_keeps_all():
    error = raised(lambda: fl.PPOConfig(lr="x"))
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # from here on it is flowrl's own code
    assert not is_in_users_code(error)
    assert frames(user_traceback(error))


def test_a_chain_of_errors_stays_one():
    def both():
        try:
            boom(1)
        except ValueError as error:
            raise KeyError("two") from error

    text = user_traceback(raised(both))
    assert "ValueError: no 1" in text and "direct cause" in text and text.endswith("KeyError: 'two'\n")


def test_a_file_that_cannot_be_read_as_python_shows_its_line(tmp_path):
    (tmp_path / "broken.py").write_text(textwrap.dedent("x = 1\ny = = 2\n"))
    error = raised(lambda: fl.PPOConfig.from_dict({"env": f"{tmp_path}/broken.py:Env"}))
    text = user_traceback(error)
    assert text.endswith('broken.py", line 2\n    y = = 2\n        ^\nSyntaxError: invalid syntax\n')
    assert "references.py" not in text
