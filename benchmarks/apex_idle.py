"""What Ape-X costs while it waits: for a learner that sleeps, and for a replay that is not full enough yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch

from benchmarks.idle import MB, cpu_share, resident_bytes
from flowrl.algorithms.apex import ApexConfig, ApexPolicy
from flowrl.batch import SampleBatch
from flowrl.iter.stream import Stream
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["run"]

SECONDS = 300.0
SETTLE_S = 5.0
AT_MOST = 2.0
MOST_MB = 20.0
INTENSITY = 8.0
WARM_UP_RESULTS = 5
STEP_S = 0.02
"""Of the slow env: with fragments of 50 steps a worker gives one in a second."""
AWAKE = threading.Event()
"""Clear while the learner sleeps."""


class SleepyPolicy(ApexPolicy):
    """Ape-X's policy; in the driver its loss waits while it is told to."""

    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, Any]]:
        AWAKE.wait()
        return super().loss(batch)


class SleepyConfig(ApexConfig):
    """Weights go out so seldom that the driver never waits for the sleeping learner's weights, only for its queues."""

    training_intensity: float | None = INTENSITY
    max_weight_sync_delay: int = 10**9

    def make_policy(self, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> SleepyPolicy:
        return SleepyPolicy(self, observation_space, action_space, seed)


class SlowCartPole(gym.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """A step takes 20 ms."""

    def step(self, action: Any) -> Any:
        time.sleep(STEP_S)
        return self.env.step(action)


def slow_cart_pole(env_config: Mapping[str, Any]) -> SlowCartPole:
    return SlowCartPole(gym.make("CartPole-v1", **env_config))


class Pulled(threading.Thread):
    """A consumer of a stream in a thread of its own, for as long as it is measured."""

    def __init__(self, stream: Stream[Any]) -> None:
        super().__init__(daemon=True)
        self.stream, self.leaving = stream, False

    def run(self) -> None:
        for _ in self.stream:
            if self.leaving:
                return


def asleep(seconds: float) -> None:
    """The learner sleeps, its queue is full, sampling stands still: CPU of this process, and what its memory grows by."""
    AWAKE.set()
    config = SleepyConfig(env="CartPole-v1", num_workers=2)
    with config.make_plan(WorkerSet(config)).run(engine="ray") as stream:
        for _ in range(WARM_UP_RESULTS):
            next(stream)
        AWAKE.clear()
        consumer = Pulled(stream)
        consumer.start()
        time.sleep(SETTLE_S)
        num_sampled = stream.metrics.counters["num_steps_sampled"]
        busy = [cpu_share(lambda: time.sleep(seconds / 5))]
        before = resident_bytes("self")["all"]
        busy += [cpu_share(lambda: time.sleep(seconds / 5)) for _ in range(4)]
        grown = (resident_bytes("self")["all"] - before) / MB
        stands = stream.metrics.counters["num_steps_sampled"] == num_sampled
        consumer.leaving = True
        AWAKE.set()
        consumer.join()
        idle = ray_idle(seconds)
    over = sum(busy) / len(busy) - idle
    verdict = "ok" if over < AT_MOST and grown < MOST_MB and stands else "MISSED"
    print(
        f"Ape-X, its learner asleep for {seconds:.0f} s: {over:+.2f} % of a core over Ray idle ({idle:.2f} %), at most +{AT_MOST:g}; after "
        f"the first fifth RSS of the driver grew {grown:+.1f} MB, at most {MOST_MB:g}; sampling {'stood still' if stands else 'WENT ON'}: "
        f"{verdict}",
        flush=True,
    )


def below_its_start(seconds: float) -> None:
    """A slow env, replay below its start: 2 fragments a second come in and are stored, nothing is replayed until it was measured."""
    learning_starts = round(1.3 * 2 / STEP_S * (SETTLE_S + seconds / 5))
    config = ApexConfig(env=slow_cart_pole, num_workers=2, learning_starts=learning_starts)
    with config.make_plan(WorkerSet(config)).run(engine="ray") as stream:
        consumer = Pulled(stream)
        consumer.start()
        time.sleep(SETTLE_S)
        before = stream.metrics.counters["num_steps_sampled"]
        busy = cpu_share(lambda: time.sleep(seconds / 5))
        num_rows = stream.metrics.counters["num_steps_sampled"] - before
        assert before + num_rows < learning_starts, "replay has started meanwhile"
        consumer.leaving = True
        consumer.join()
        over = busy - ray_idle(seconds)
    print(
        f"Ape-X, replay below its start, {num_rows / config.fragment_rows / (seconds / 5):.1f} fragments a second: {over:+.2f} % of a core "
        f"over Ray idle, at most +{AT_MOST:g}: {'ok' if over < AT_MOST else 'MISSED'}",
        flush=True,
    )


def ray_idle(seconds: float) -> float:
    """CPU of this process while nobody pulls, a fifth of the time."""
    time.sleep(SETTLE_S)
    return cpu_share(lambda: time.sleep(seconds / 5))


def run(seconds: float = SECONDS) -> None:
    if not ray.is_initialized():
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    asleep(seconds)
    below_its_start(seconds)
