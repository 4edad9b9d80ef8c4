import networkx as nx

from flowrl.graph.network import to_networkx

from .plans import HARMFUL_TEXTS, apex, everywhere, ppo, running_diamond


def test_node_has_its_records_fields() -> None:
    assert to_networkx(ppo()).nodes["n5"] == {
        "operator": "TrainOneStep",
        "parameters": {"num_sgd_iter": "10", "sgd_minibatch_size": "128"},
        "place": "driver",
        "num_shards": 0,
        "line": "plan.py:10",
    }


def test_edge_has_its_kind_and_label() -> None:
    assert to_networkx(ppo()).edges["n5", "n0", 0] == {"kind": "message", "label": "weights"}


def test_running_edge_has_the_counts_that_are_known() -> None:
    graph = to_networkx(running_diamond())
    assert graph.edges["n1", "n2", 0] == {"kind": "items", "label": "", "items_in": 1200, "items_out": 1184, "held": 16}
    assert graph.edges["n4", "n5", 0] == {"kind": "items", "label": "", "items_in": 300}


def test_graph_knows_root_and_engine() -> None:
    assert to_networkx(running_diamond()).graph == {"root": "n5", "engine": "ray"}


def test_all_nodes_of_apex_lead_to_the_root() -> None:
    graph = to_networkx(apex())
    assert nx.ancestors(graph, "n12") == set(graph) - {"n12"}


def test_texts_stay_as_they_are() -> None:
    for text in HARMFUL_TEXTS:
        assert to_networkx(everywhere(text)).nodes["n0"]["operator"] == text
