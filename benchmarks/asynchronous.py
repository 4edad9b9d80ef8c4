"""A3C and Ape-X on two Ray workers, beside loops over Ray actors that a user would write by hand of the very same parts.

Both sides are open at once and work in turn, each for some seconds: workers, learner and replay of the other one stand still meanwhile.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Protocol, TypeAlias

import ray

from benchmarks.pairs import Row
from flowrl.algorithms.a3c import A3CConfig
from flowrl.algorithms.apex import ApexConfig
from flowrl.config import AlgorithmConfig
from flowrl.iter.stream import Stream
from flowrl.metrics.names import NUM_STEPS_SAMPLED, NUM_STEPS_TRAINED
from flowrl.replay.actor import ReplayActor
from flowrl.rollout.worker import RolloutWorker
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["run_a3c", "run_apex"]

NUM_PAIRS = 9
TURN_S = 6.0
SETTLE_S = 0.3
"""Between two turns: what a side has in flight comes to its end, its learner's queue runs empty."""
AT_LEAST = 0.9
INTENSITY = 16.0
"""Trained rows for each sampled one where the ratio is fixed."""
QUEUE_SIZE = 16
NUM_SAMPLING, NUM_REPLAYING = 2, 4
"""Calls in flight at each worker, and at each replay actor."""
POLL_S = 0.005
"""How long the loop by hand waits for Ray before it looks at its learner: `ray.wait` knows no queues."""


Rates: TypeAlias = tuple[list[dict[str, float]], list[dict[str, float]]]
"""What each side did a second, turn by turn: counter -> number."""


class Side(Protocol):
    """One way of doing it, open and warm."""

    def work(self, seconds: float) -> Mapping[str, float]:
        """Go on for so long: what was done meanwhile."""


class Ours:
    """A prebuilt plan."""

    def __init__(self, config: AlgorithmConfig, stack: ExitStack) -> None:
        self.stream: Stream[Any] = stack.enter_context(config.make_plan(WorkerSet(config)).run(engine="ray"))

    def work(self, seconds: float) -> Mapping[str, float]:
        counters, until = self.stream.metrics.counters, time.perf_counter() + seconds
        before = Counter(counters)
        for _ in self.stream:
            if time.perf_counter() > until:
                break
        return {name: counters[name] - before[name] for name in (NUM_STEPS_SAMPLED, NUM_STEPS_TRAINED)}


class GradientWorker(RolloutWorker):
    """A worker that samples and computes a gradient in one call."""

    def gradient(self) -> tuple[Any, int]:
        batch = self.sample()
        return self.compute_gradients(batch), batch.count


class A3CByHand:
    """Apply a gradient, send its worker the weights, ask it again."""

    def __init__(self, config: A3CConfig, stack: ExitStack) -> None:
        self.local = RolloutWorker(config)
        self.workers = started(stack, GradientWorker, [(config, index) for index in range(1, config.num_workers + 1)])
        self.calls = {worker.gradient.remote(): worker for worker in self.workers}

    def work(self, seconds: float) -> Mapping[str, float]:
        until, num_steps = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            ready, _ = ray.wait(list(self.calls), num_returns=1)
            worker = self.calls.pop(ready[0])
            (gradient, info), count = ray.get(ready[0])
            self.local.apply_gradients(gradient, info)
            worker.set_weights.remote(self.local.get_weights())
            self.calls[worker.gradient.remote()] = worker
            num_steps += count
        return {NUM_STEPS_SAMPLED: num_steps, NUM_STEPS_TRAINED: num_steps}


class ApexByHand:
    """Sample, store, replay, learn in a thread, give priorities and weights back: one loop around `ray.wait`."""

    def __init__(self, config: ApexConfig, stack: ExitStack) -> None:
        self.config = config
        self.local = RolloutWorker(config)
        self.workers = started(stack, RolloutWorker, [(config, index) for index in range(1, config.num_workers + 1)])
        num_shards = config.num_replay_buffer_shards
        settings = [num_shards, *config.replay_settings]
        self.replays = started(stack, ReplayActor, [ReplayActor.args_of_shard(settings, shard) for shard in range(num_shards)])
        self.inqueue: queue.Queue[Any] = queue.Queue(QUEUE_SIZE)
        self.outqueue: queue.Queue[Any] = queue.Queue(QUEUE_SIZE)
        self.weights_updated, self.weights = True, None
        self.steps_since_update: Counter[Any] = Counter()
        self.counters: Counter[str] = Counter()
        self.num_stored = self.steps_at_target = 0
        self.owed = 0.0
        self.sampling = {worker.sample.remote(): worker for worker in self.workers for _ in range(NUM_SAMPLING)}
        self.replaying: dict[Any, Any] = {}
        threading.Thread(target=self._learn, daemon=True).start()
        stack.callback(self.inqueue.put, None)

    def work(self, seconds: float) -> Mapping[str, float]:
        until, before = time.perf_counter() + seconds, Counter(self.counters)
        while time.perf_counter() < until:
            calls = self._awaited()
            if calls:
                ready, _ = ray.wait(calls, num_returns=1, timeout=POLL_S)
                if ready and len(calls) > 1:
                    ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
                for call in ready:
                    if call in self.sampling:
                        self._store(call)
                    elif not self.inqueue.full():
                        self._replay(call)
            else:
                self._update(self.outqueue.get())
            while not self.outqueue.empty():
                self._update(self.outqueue.get())
        return {name: self.counters[name] - before[name] for name in (NUM_STEPS_SAMPLED, NUM_STEPS_TRAINED)}

    def _awaited(self) -> list[Any]:
        """The calls whose answers there is room for, and, with `training_intensity`, whose turn it is."""
        may_replay = bool(self.replaying) and not self.inqueue.full()
        if self.config.training_intensity is None:
            return [*self.sampling, *(self.replaying if may_replay else ())]
        if self.owed < 1 or not self.replaying:
            return list(self.sampling)
        return list(self.replaying) if may_replay else []

    def _store(self, call: Any) -> None:
        worker = self.sampling.pop(call)
        batch = ray.get(call)
        self.counters[NUM_STEPS_SAMPLED] += batch.count
        self.replays[self.num_stored % len(self.replays)].add_batch.remote(call)
        self.num_stored += 1
        self.steps_since_update[worker] += batch.count
        if self.steps_since_update[worker] >= self.config.max_weight_sync_delay:
            self.steps_since_update[worker] = 0
            if self.weights_updated:
                self.weights_updated = False
                self.weights = ray.put(self.local.get_weights())
            worker.set_weights.remote(self.weights)
        self.sampling[worker.sample.remote()] = worker
        if self.replaying:
            self.owed += self.config.batches_for(batch.count)
        elif self.counters[NUM_STEPS_SAMPLED] >= self.config.learning_starts + len(self.replays) * self.config.fragment_rows:
            self.replaying = {replay.replay.remote(): replay for replay in self.replays for _ in range(NUM_REPLAYING)}

    def _replay(self, call: Any) -> None:
        if self.config.training_intensity is not None:
            if self.owed < 1:
                return
            self.owed -= 1
        replay = self.replaying.pop(call)
        self.inqueue.put((replay, ray.get(call)))
        self.replaying[replay.replay.remote()] = replay

    def _update(self, learned: tuple[Any, Any, int]) -> None:
        replay, priorities, count = learned
        replay.update_priorities.remote(priorities)
        self.counters[NUM_STEPS_TRAINED] += count
        if self.counters[NUM_STEPS_TRAINED] - self.steps_at_target >= self.config.target_network_update_freq:
            self.steps_at_target = self.counters[NUM_STEPS_TRAINED]
            self.local.update_target()

    def _learn(self) -> None:
        while True:
            item = self.inqueue.get()
            if item is None:
                return
            replay, batch = item
            stats = self.local.learn_on_batch(batch)
            self.weights_updated = True
            self.outqueue.put((replay, {"default": (batch["batch_indexes"], stats["td_errors"])}, batch.count))


def started(stack: ExitStack, cls: type, args: list[tuple[Any, ...]]) -> list[Any]:
    """Ray actors of a class, killed at the end."""
    actor_class = ray.remote(num_cpus=0)(cls)
    actors = [actor_class.remote(*each) for each in args]
    for actor in actors:
        stack.callback(ray.kill, actor)
    return actors


def in_turn(ours: Side, by_hand: Side, num_pairs: int) -> Rates:
    """What each side did a second, turn by turn, after two turns that warm it up."""
    rates: dict[Side, list[dict[str, float]]] = {ours: [], by_hand: []}
    for pair in range(-2, num_pairs):
        for side in (ours, by_hand) if pair % 2 == 0 else (by_hand, ours):
            time.sleep(SETTLE_S)
            start = time.perf_counter()
            done = side.work(TURN_S)
            spent_s = time.perf_counter() - start
            if pair >= 0:
                rates[side].append({name: num / spent_s for name, num in done.items()})
    return rates[ours], rates[by_hand]


def row(work: str, rates: Rates, counter: str, unit: str, rows: int = 1) -> Row:
    """One counter of both sides, in units of so many rows, printed."""
    ours, by_hand = ([turn[counter] / rows for turn in side] for side in rates)
    made = Row(work, "ray.wait by hand", ours, by_hand, AT_LEAST, unit)
    print(made, flush=True)
    return made


def run_a3c(num_pairs: int = NUM_PAIRS) -> list[Row]:
    """Gradients that were applied."""
    config = A3CConfig(env="CartPole-v1", num_workers=2)
    with ExitStack() as stack:
        rates = in_turn(Ours(config, stack), A3CByHand(config, stack), num_pairs)
    return [row(f"A3C, 2 workers{load()}", rates, NUM_STEPS_TRAINED, "grads/s", config.fragment_rows)]


def run_apex(num_pairs: int = NUM_PAIRS) -> list[Row]:
    """Rows sampled and trained on as fast as both go, which take the cores from each other; then at a fixed ratio, one number for both."""
    rows = []
    for intensity in (None, INTENSITY):
        config = ApexConfig(env="CartPole-v1", num_workers=2, num_replay_buffer_shards=2, training_intensity=intensity)
        with ExitStack() as stack:
            rates = in_turn(Ours(config, stack), ApexByHand(config, stack), num_pairs)
        how = "async" if intensity is None else f"trained : sampled = {intensity:g}"
        rows += [
            row(f"Ape-X, {how}, sampled{load()}", rates, NUM_STEPS_SAMPLED, "rows/s"),
            row(f"Ape-X, {how}, trained{load()}", rates, NUM_STEPS_TRAINED, "rows/s"),
        ]
    return rows


def load() -> str:
    """What else the machine does."""
    return f", load {os.getloadavg()[0]:.1f}"
