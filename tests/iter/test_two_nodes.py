"""A plan over two machines: `ray.cluster_utils.Cluster` starts two nodes in this one. One process, a few plans."""

from __future__ import annotations

import pytest

SCRIPT = """
import ray
from ray.cluster_utils import Cluster

from flowrl.iter import ActorHandle, ParallelIteratorWorker, create_colocated, from_actors
from flowrl.iter.ray_engine import RayEngine


class Letters(ParallelIteratorWorker):
    def __init__(self, letters):
        super().__init__(letters, False)

    def node(self):
        return ray.get_runtime_context().get_node_id()


size = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"head": 4}, **size})
cluster.add_node(num_cpus=1, resources={"other": 4}, object_store_memory=80 * 2**20)
cluster.wait_for_nodes()
engine = RayEngine(address=cluster.address)
handles = [ActorHandle(Letters, [letters], {"resources": {place: 1}}) for letters, place in (("abcd", "head"), ("wxyz", "other"))]
plan = from_actors(handles).for_each(str.upper)
with handles[0].open(engine), handles[1].open(engine):
    print("nodes", len({engine.result(handle.node.remote()) for handle in handles}))
    print("sync", "".join(plan.gather_sync().run(engine)))
    print("async", "".join(sorted(plan.gather_async(num_async=2).run(engine))))
    print("repartition", "".join(sorted(plan.repartition(2).for_each(str.lower).gather_async().run(engine))))
    (near,) = create_colocated(Letters, [""], 1)
    with near.open(engine):
        print("colocated", engine.result(near.node.remote()) == ray.get_runtime_context().get_node_id())
ray.shutdown()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def two_nodes(python):
    return dict(line.split(" ", 1) for line in python(SCRIPT).splitlines() if " " in line)


def test_the_shards_are_on_two_nodes(two_nodes):
    assert two_nodes["nodes"] == "2"


def test_gathers_work_over_two_nodes(two_nodes):
    assert (two_nodes["sync"], two_nodes["async"]) == ("AWBXCYDZ", "ABCDWXYZ")


def test_repartition_works_over_two_nodes(two_nodes):
    assert two_nodes["repartition"] == "abcdwxyz"


def test_colocated_actors_are_on_the_drivers_node(two_nodes):
    assert two_nodes["colocated"] == "True"
