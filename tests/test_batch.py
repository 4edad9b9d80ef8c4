import pickle

import numpy as np
import pytest

from flowrl.batch import EpisodeStats, Origin, SampleBatch


def numbers(count: int, first: int = 0, **more: object) -> SampleBatch:
    return SampleBatch({"obs": np.arange(first, first + count, dtype=np.float32)}, **more)


def test_columns_read_like_a_mapping():
    batch = SampleBatch({"obs": np.zeros((3, 2)), "actions": [0, 1, 0]})
    assert list(batch) == ["obs", "actions"]
    assert "obs" in batch and "rewards" not in batch
    assert {name: column.shape for name, column in batch.items()} == {"obs": (3, 2), "actions": (3,)}
    assert (batch.count, batch.nbytes) == (3, 3 * 2 * 8 + 3 * 8)


def test_an_unknown_column_is_named_with_those_there_are():
    with pytest.raises(KeyError, match=r"no column 'rewards'.*'obs'"):
        numbers(2)["rewards"]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"'obs': 3, 'rewards': 2"):
        SampleBatch({"obs": np.zeros(3), "rewards": np.zeros(2)})


@pytest.mark.parametrize("columns", [{}, {"obs": 1.0}], ids=["no column", "no step axis"])
def test_a_batch_without_a_step_axis_is_refused(columns):
    with pytest.raises(ValueError, match="column"):
        SampleBatch(columns)


def test_an_array_that_owns_its_memory_is_taken_over_without_a_copy():
    mine = np.zeros(3)
    batch = SampleBatch({"obs": mine})
    assert np.shares_memory(batch["obs"], mine)
    assert not mine.flags.writeable


def test_a_view_of_memory_that_somebody_can_write_to_is_copied():
    mine = np.zeros(6)
    read_only_view = mine[:]
    read_only_view.flags.writeable = False
    batches = [SampleBatch({"obs": mine[:3]}), SampleBatch({"obs": read_only_view})]
    mine[:] = 7.0
    assert [batch["obs"].sum() for batch in batches] == [0.0, 0.0]


@pytest.mark.parametrize(
    "derive",
    [
        lambda b: b,
        lambda b: b[1:3],
        lambda b: b[np.array([2, 0])],
        lambda b: next(b.minibatches(2, np.random.default_rng(0))),
        lambda b: b.with_columns(t=np.arange(4)),
        lambda b: SampleBatch.concat([b, b]),
        lambda b: SampleBatch.concat([b]),
        lambda b: pickle.loads(pickle.dumps(b, protocol=5)),
    ],
    ids=["itself", "slice", "rows", "minibatch", "with_columns", "concat", "concat of one", "unpickled"],
)
def test_every_batch_is_read_only(derive):
    batch = derive(numbers(4))
    for name in batch:
        with pytest.raises(ValueError, match="read-only"):
            batch[name][0] = 1


def test_pickle_5_takes_the_columns_out_of_band_and_back_without_a_copy():
    batch = SampleBatch({"obs": np.arange(1000.0), "t": np.arange(1000)}, Origin(2, 1, 7), [EpisodeStats(3.0, 2, 2)])
    buffers = []
    stream = pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
    assert (len(buffers), len(stream) < 1000) == (2, True)
    writable = [bytearray(buffer.raw()) for buffer in buffers]
    back = pickle.loads(stream, buffers=writable)
    assert back["obs"].tolist() == batch["obs"].tolist()
    assert np.shares_memory(back["obs"], np.frombuffer(writable[0], np.float64))
    assert not back["obs"].flags.writeable
    assert (back.origin, back.episodes) == (Origin(2, 1, 7), (EpisodeStats(3.0, 2, 2),))


def test_concat_joins_rows_origins_and_episodes_in_order():
    a = numbers(2, 0, origin=Origin(1, 0, 0), episodes=[EpisodeStats(1.0, 1, 1)])
    b = numbers(1, 2, origin=Origin(2, 0, 0))
    c = numbers(2, 3, origin=Origin(1, 0, 1), episodes=[EpisodeStats(2.0, 2, 1)])
    joined = SampleBatch.concat([SampleBatch.concat([a, b]), c])
    assert joined["obs"].tolist() == [0, 1, 2, 3, 4]
    assert joined.origin == (Origin(1, 0, 0), Origin(2, 0, 0), Origin(1, 0, 1))
    assert joined.episodes == (EpisodeStats(1.0, 1, 1), EpisodeStats(2.0, 2, 1))


def test_a_concatenation_of_replayed_rows_has_no_origin():
    assert SampleBatch.concat([numbers(1), numbers(1)]).origin is None


def test_concat_names_the_batch_that_has_other_columns():
    with pytest.raises(ValueError, match=r"batch 1 has the columns \['rewards'\], batch 0 has \['obs'\]"):
        SampleBatch.concat([numbers(1), SampleBatch({"rewards": [0.0]})])


def test_concat_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no batches"):
        SampleBatch.concat([])


def test_a_selection_of_rows_has_no_origin_and_no_episodes():
    batch = numbers(6, origin=Origin(1, 0, 0), episodes=[EpisodeStats(1.0, 1, 1)])
    selections = [batch[3:5], batch[np.array([1])], *batch.minibatches(0, np.random.default_rng(0))]
    assert [(s.origin, s.episodes) for s in selections] == [(None, ())] * 3
    assert batch[3:5]["obs"].tolist() == [3, 4]


def test_with_columns_leaves_the_batch_as_it_was_and_keeps_where_it_came_from():
    batch = numbers(2, origin=Origin(1, 0, 0), episodes=[EpisodeStats(1.0, 1, 1)])
    more = batch.with_columns(obs=np.array([8.0, 9.0]), t=np.arange(2))
    assert (batch["obs"].tolist(), list(batch)) == ([0, 1], ["obs"])
    assert (more["obs"].tolist(), list(more)) == ([8, 9], ["obs", "t"])
    assert (more.origin, more.episodes) == (batch.origin, batch.episodes)


def test_one_row_number_is_refused_with_what_to_write():
    with pytest.raises(TypeError, match=r"batch\[i : i \+ 1\]"):
        numbers(3)[1]


def test_minibatches_hold_every_row_once_and_a_short_one_last():
    minibatches = list(numbers(10).minibatches(4, np.random.default_rng(0)))
    assert [m.count for m in minibatches] == [4, 4, 2]
    assert sorted(row for m in minibatches for row in m["obs"].tolist()) == list(range(10))


def test_minibatches_are_shuffled_by_the_generator_they_are_given():
    def order(seed: int) -> list[float]:
        return [row for m in numbers(10).minibatches(4, np.random.default_rng(seed)) for row in m["obs"].tolist()]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != list(range(10))


@pytest.mark.parametrize("size", [0, 10, 11])
def test_a_minibatch_of_everything_is_the_batch_as_it_is(size):
    assert [m["obs"].tolist() for m in numbers(10).minibatches(size, np.random.default_rng(0))] == [list(range(10))]


def test_a_negative_minibatch_size_is_refused():
    with pytest.raises(ValueError, match="minibatch size -1"):
        list(numbers(3).minibatches(-1, np.random.default_rng(0)))


def test_setting_a_column_says_how_a_new_batch_is_made():
    with pytest.raises(TypeError, match=r"batch = batch\.with_columns\(rewards=\.\.\.\)"):
        SampleBatch({"rewards": [1.0]})["rewards"] = [2.0]


def test_a_split_has_every_row_once_in_order():
    parts = SampleBatch({"t": range(7)}).split(3)
    assert [part["t"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    with pytest.raises(ValueError, match="split into parts of 0 rows"):
        parts[0].split(0)
