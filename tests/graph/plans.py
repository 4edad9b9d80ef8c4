"""Plans as a plan's passes would record them: synchronous PPO, Ape-X, a diamond, a running chain, and texts that mean harm."""

from __future__ import annotations

from dataclasses import replace

from flowrl.graph.records import EdgeRecord, Flow, NodeRecord, Place, PlanRecord

HARMFUL_TEXTS = [
    "<script>alert(1)</script>",
    "</script></style></svg>]]>",
    "a < b > c & d",
    "&lt;&amp;&#35;#quot;#35;",
    "\"quoted\" and 'quoted'",
    r"\N \G \E \\N \n \l back\slash" + "\\",
    "fn[0](x){y}|z|",
    "%% comment; %%{init: {}}%% # heading",
    "`**bold**` _under_ ~~gone~~",
    "1. list",
    "- list",
    "end",
    "[click](javascript:alert(1)) https://example.com www.example.com",
    "A & B --- C; click n0 call alert(1)",
    "--> n1",
    "line\nbreak\ttab\rreturn",
    "\x00\x1b[31mred\x7f",
    "\u202eright to left\u2066",
    "\ud800 \ufffe",
    "ünïcödé 强化学习 🎲",
    "a  b   c",
    " ",
]


def node(index: int, operator: str, *, shards: int = 0, place: Place = "driver", line: int = 0, **parameters: object) -> NodeRecord:
    texts = tuple((name, str(value)) for name, value in parameters.items())
    return NodeRecord(f"n{index}", operator, texts, "shards" if shards else place, shards, f"plan.py:{line}" if line else "")


def everywhere(text: str) -> PlanRecord:
    """A plan with the text in every place that a user can reach."""
    nodes = (
        NodeRecord("n0", text, ((text, text), ("fn", text)), "shards", 2, text),
        NodeRecord("n1", text, (), "learner", 0, text),
        NodeRecord("n2", text, (), "driver", 0, text),
    )
    edges = (EdgeRecord("n0", "n1", "queue", text), EdgeRecord("n1", "n2", "items", text), EdgeRecord("n2", "n0", "message", text))
    return PlanRecord(nodes, edges, root="n2", engine=text)


def single() -> PlanRecord:
    return PlanRecord((node(0, "from_iterable"),), (), root="n0")


def ppo() -> PlanRecord:
    nodes = (
        node(0, "ParallelRollouts", shards=2, line=6, mode="bulk_sync"),
        node(1, "batch_across_shards", line=6),
        node(2, "for_each", line=6, fn="concat_samples"),
        node(3, "ConcatBatches", line=8, min_batch_size=4000),
        node(4, "StandardizeFields", line=9, fields="['advantages']"),
        node(5, "TrainOneStep", line=10, num_sgd_iter=10, sgd_minibatch_size=128),
        node(6, "StandardMetricsReporting", line=12),
    )
    chain = tuple(EdgeRecord(f"n{index}", f"n{index + 1}") for index in range(6))
    return PlanRecord(nodes, (*chain, EdgeRecord("n5", "n0", "message", "weights")), root="n6")


def apex() -> PlanRecord:
    nodes = (
        node(0, "ParallelRollouts", shards=2, line=9, mode="async", num_async=2),
        node(1, "gather_async", line=9, num_async=2),
        node(2, "StoreToReplayBuffer", line=12, actors="2 × ReplayActor"),
        node(3, "UpdateWorkerWeights", line=14, max_weight_sync_delay=400),
        node(4, "Replay", shards=2, line=17, actors="2 × ReplayActor", num_async=4),
        node(5, "gather_async", line=17, num_async=4),
        node(6, "Enqueue", line=19, queue="learner.inqueue"),
        node(7, "LearnerThread", place="learner", line=5),
        node(8, "Dequeue", line=22, queue="learner.outqueue"),
        node(9, "UpdatePriorities", line=23),
        node(10, "UpdateTargetNetwork", line=24, target_update_freq=500, by_steps_trained=True),
        node(11, "Concurrently", line=26, mode="async", output_indexes="[2]"),
        node(12, "StandardMetricsReporting", line=27),
    )
    pairs = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (8, 9), (9, 10), (3, 11), (6, 11), (10, 11), (11, 12)]
    edges = (
        *(EdgeRecord(f"n{source}", f"n{target}") for source, target in pairs),
        EdgeRecord("n6", "n7", "queue", "inqueue (16)"),
        EdgeRecord("n7", "n8", "queue", "outqueue (16)"),
        EdgeRecord("n3", "n0", "message", "weights"),
        EdgeRecord("n9", "n4", "message", "priorities"),
    )
    return PlanRecord(nodes, edges, root="n12")


def diamond() -> PlanRecord:
    nodes = (
        node(0, "from_range", shards=3, line=1, n=100),
        node(1, "gather_sync", line=1),
        node(2, "duplicate", line=2, n=2),
        node(3, "for_each", line=3, fn="double @ plan.py:3"),
        node(4, "filter", line=4, fn="is_even @ plan.py:4"),
        node(5, "union", line=5, deterministic=True),
    )
    pairs = [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5)]
    return PlanRecord(nodes, tuple(EdgeRecord(f"n{source}", f"n{target}") for source, target in pairs), root="n5")


def running_diamond() -> PlanRecord:
    plan = diamond()
    flows = [
        Flow(1200, 1200, 0),
        Flow(1200, 1184, 16),
        Flow(1184, 1184, 0),
        Flow(1184, 600, 584),
        Flow(1184, 1184, 0),
        Flow(300, None, None),
    ]
    edges = tuple(replace(edge, flow=flow) for edge, flow in zip(plan.edges, flows, strict=True))
    return replace(plan, edges=edges, engine="ray")


def running_apex() -> PlanRecord:
    plan = apex()
    edges = tuple(
        edge if edge.kind == "message" else replace(edge, flow=Flow(900 + 10 * index, 900 + 9 * index, index))
        for index, edge in enumerate(plan.edges)
    )
    return replace(plan, edges=edges, engine="ray")
