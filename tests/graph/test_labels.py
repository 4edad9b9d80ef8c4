from flowrl.graph.labels import edge_lines, operator_line, parameter_lines, shortened, visible, whole_line
from flowrl.graph.records import EdgeRecord, Flow, NodeRecord


def test_unseen_characters_are_written_as_python_writes_them() -> None:
    assert visible("a\nb\x00\u202e\ud800\ufffe") == r"a\nb\x00\u202e\ud800\ufffe"


def test_letters_of_all_languages_stay() -> None:
    assert visible("ünï 强化 🎲 <b>") == "ünï 强化 🎲 <b>"


def test_long_text_keeps_its_two_ends() -> None:
    assert shortened("f" * 100 + " @ plan.py:3", 21) == "ffffffffff… plan.py:3"


def test_text_of_the_allowed_length_stays_whole() -> None:
    assert shortened("x" * 21, 21) == "x" * 21


def test_operator_without_a_name_is_a_question_mark() -> None:
    assert operator_line(NodeRecord("n0", "", (), "driver", 0, "")) == "?"


def test_seventh_parameter_is_counted_not_shown() -> None:
    parameters = tuple((name, "1") for name in "abcdefgh")
    assert parameter_lines(NodeRecord("n0", "f", parameters, "driver", 0, "")) == ["a = 1", "b = 1", "c = 1", "d = 1", "e = 1", "… 3 more"]


def test_six_parameters_are_all_shown() -> None:
    parameters = tuple((name, "1") for name in "abcdef")
    assert parameter_lines(NodeRecord("n0", "f", parameters, "driver", 0, ""))[-1] == "f = 1"


def test_whole_line_leaves_nothing_out() -> None:
    assert whole_line(NodeRecord("n0", "f" * 200, (("x", "y" * 200),), "driver", 0, "")) == f"n0 {'f' * 200}(x={'y' * 200})"


def test_message_without_a_label_says_what_it_is() -> None:
    assert edge_lines(EdgeRecord("n0", "n1", "message")) == ["message"]


def test_unknown_counts_are_left_out() -> None:
    assert edge_lines(EdgeRecord("n0", "n1", flow=Flow(None, 3, None))) == ["3 out"]
    assert edge_lines(EdgeRecord("n0", "n1", flow=Flow(None, None, None))) == []


def test_items_that_are_held_are_told_even_when_counts_agree() -> None:
    assert edge_lines(EdgeRecord("n0", "n1", flow=Flow(3, 3, 2))) == ["3 in · 3 out", "2 held"]
