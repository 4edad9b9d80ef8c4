"""Pictures of the asynchronous and off-policy plans, as text: every operator by place, and what is sent beside the items."""

from __future__ import annotations

import re

import pytest

import flowrl as fl
from flowrl.algorithms import a3c, apex, dqn

CONFIGS = {
    a3c: fl.A3CConfig(env="CartPole-v1", num_workers=2, min_steps_per_reporting=1000),
    dqn: fl.DQNConfig(
        env="CartPole-v1",
        prioritized_replay=True,
        train_batch_size=32,
        training_intensity=16,
        rollout_fragment_length=4,
        num_envs=1,
        target_network_update_freq=500,
        min_steps_per_reporting=1000,
    ),
    apex: fl.ApexConfig(
        env="CartPole-v1",
        num_workers=2,
        train_batch_size=512,
        training_intensity=8,
        rollout_fragment_length=50,
        num_envs=1,
        target_network_update_freq=50_000,
        max_weight_sync_delay=400,
        min_steps_per_reporting=1000,
    ),
}
A3C = """
8 operators, engine: RayEngine()
place      line       operator
driver     a3c.py  n7 CollectMetrics(num_episodes=100)
driver     a3c.py  └─ n6 ResultIsDue(min_steps=1000, min_time_s=0.0)
driver     a3c.py  └─ n5 ApplyGradients(update_all=False)
                            │  ┄> weights to n0 ParallelRollouts
driver     a3c.py  └─ n4 zip_with_source_actor
driver     a3c.py  └─ n3 gather_async(num_async=1)
shards ×2  a3c.py  └─ n2 ComputeGradients
shards ×2  a3c.py  └─ n1 CountRollouts
shards ×2  a3c.py  └─ n0 ParallelRollouts
"""

DQN = """
10 operators, engine: SerialEngine(seed=0)
place   line        operator
driver  dqn.py  n9 CollectMetrics(num_episodes=100)
driver  dqn.py  └─ n8 ResultIsDue(min_steps=1000, min_time_s=0.0)
driver  dqn.py  └─ n7 Concurrently(mode=round_robin, output_indexes=[1])
driver  dqn.py  ├─ weight 1: n2 StoreToReplayBuffer
                          │  │  ┄> rows to n3 Replay
driver  dqn.py  │  └─ n1 CountRollouts
driver  dqn.py  │     └─ n0 ParallelRollouts
driver  dqn.py  └─ weight 2: n6 UpdateTargetNetwork(target_update_freq=500, by_steps_trained=False)
driver  dqn.py  └─ n5 UpdatePriorities
                                │  ┄> priorities to n3 Replay
driver  dqn.py  └─ n4 TrainOneStep(num_sgd_iter=1, sgd_minibatch_size=0)
                                   │  ┄> weights to n0 ParallelRollouts
driver  dqn.py  └─ n3 Replay
"""

APEX = """
17 operators, engine: RayEngine()
place      line         operator
driver     apex.py  n15 CollectMetrics(num_episodes=100)
driver     apex.py  └─ n14 ResultIsDue(min_steps=1000, min_time_s=0.0)
driver     apex.py  └─ n13 Concurrently(mode=round_robin, output_indexes=[2])
driver     apex.py  ├─ weight 1: n5 UpdateWorkerWeights(max_weight_sync_delay=400)
                              │  │  ┄> weights to n0 ParallelRollouts
driver     apex.py  │  └─ n4 zip_with_source_actor
driver     apex.py  │     └─ n3 StoreToReplayBuffer
                              │        │  ┄> rows to n6 Replay
driver     apex.py  │        └─ n2 CountRollouts
driver     apex.py  │           └─ n1 gather_async(num_async=2)
shards ×2  apex.py  │              └─ n0 ParallelRollouts
driver     apex.py  ├─ weight 25/32: n9 Enqueue(queue=Queue(maxsize=16))
driver     apex.py  │  └─ n8 zip_with_source_actor
driver     apex.py  │     └─ n7 gather_async(num_async=4)
shards ×2  apex.py  │        └─ n6 Replay
driver     apex.py  └─ weight *: n12 UpdateTargetNetwork(target_update_freq=50000, by_steps_trained=True)
driver     apex.py  └─ n11 UpdatePriorities
                                    │  ┄> priorities to n6 Replay
driver     apex.py  └─ n10 Dequeue(queue=Queue(maxsize=16))
learner                                ╘═ queue Queue(maxsize=16): n16 LearnerThread
                                          │  ┄> weights to n5 UpdateWorkerWeights
driver     apex.py  ╘═ queue Queue(maxsize=16): n9 Enqueue (see above)
"""


@pytest.mark.parametrize(("module", "expected"), [(a3c, A3C), (dqn, DQN), (apex, APEX)], ids=["a3c", "dqn", "apex"])
def test_the_plan_as_text(module, expected):
    config = CONFIGS[module]
    text = module.execution_plan(fl.WorkerSet(config), config).explain()
    assert re.sub(r"\.py:\d+ *", ".py  ", text) == expected.strip()


def test_weights_rows_and_priorities_are_dashed_and_the_learner_has_a_box_of_its_own(tmp_path):
    config = CONFIGS[apex]
    plan = apex.execution_plan(fl.WorkerSet(config), config)
    plan.draw(tmp_path / "apex.dot")
    dot = (tmp_path / "apex.dot").read_text()
    dashed = [line for line in dot.splitlines() if "style=dashed" in line]
    assert sorted(re.search(r"(weights|rows|priorities)", line)[0] for line in dashed) == ["priorities", "rows", "weights", "weights"]
    assert "class=learner" in dot and dot.count("class=queue") == 2


def test_the_picture_fits_the_width_of_a_page(tmp_path):
    """720 points, as wide as a page's text in a browser; letters of 10 points stay as they are then."""
    config = CONFIGS[apex]
    apex.execution_plan(fl.WorkerSet(config), config).draw(tmp_path / "apex.svg")
    width = float(re.search(r'<svg width="([\d.]+)pt"', (tmp_path / "apex.svg").read_text())[1])
    assert width <= 720


def test_a_running_plan_shows_what_has_passed_the_learner():
    config = CONFIGS[apex].replace(learning_starts=300, hiddens=(16,), train_batch_size=32, min_steps_per_reporting=0)
    with apex.execution_plan(fl.WorkerSet(config), config).run(engine="serial") as stream:
        for _ in range(20):
            next(stream)
        trained = stream.metrics.counters["num_steps_trained"] // 32
        (line,) = [line for line in stream.explain().splitlines() if "LearnerThread" in line]
        assert re.findall(r"\d+", line)[:3] == [str(trained), str(trained), "0"]
