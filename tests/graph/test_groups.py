from flowrl.graph.groups import grouped, picture_ids
from flowrl.graph.records import EdgeRecord, NodeRecord, PlanRecord

from .plans import apex, node


def _members(plan: PlanRecord) -> list[tuple[str, list[str]]]:
    return [(group.title, [member.id for member in group.nodes]) for group in grouped(plan) if group.place != "driver"]


def test_neighbours_in_the_same_shards_share_a_box() -> None:
    nodes = (node(0, "from_range", shards=2), node(1, "for_each", shards=2), node(2, "filter", shards=2), node(3, "gather_sync"))
    plan = PlanRecord(nodes, (EdgeRecord("n1", "n2"), EdgeRecord("n0", "n1"), EdgeRecord("n2", "n3")), root="n3")
    assert _members(plan) == [("shards ×2", ["n0", "n1", "n2"])]


def test_repartition_to_other_shards_starts_a_box() -> None:
    nodes = (node(0, "from_range", shards=4), node(1, "repartition", shards=2))
    assert _members(PlanRecord(nodes, (EdgeRecord("n0", "n1"),), root="n1")) == [("shards ×4", ["n0"]), ("shards ×2", ["n1"])]


def test_unconnected_shards_have_boxes_of_their_own() -> None:
    assert _members(apex()) == [("shards ×2", ["n0"]), ("shards ×2", ["n4"]), ("learner", ["n7"])]


def test_messages_do_not_join_boxes() -> None:
    nodes = (node(0, "ParallelRollouts", shards=2), node(1, "Replay", shards=2))
    assert len(_members(PlanRecord(nodes, (EdgeRecord("n0", "n1", "message", "weights"),), root="n1"))) == 2


def test_picture_ids_are_plain_whatever_the_records_say() -> None:
    odd = NodeRecord('"; end', "from_range", (), "driver", 0, "")
    assert picture_ids(PlanRecord((odd,), (), root=odd.id)) == {'"; end': "n0"}
