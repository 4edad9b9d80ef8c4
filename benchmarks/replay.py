"""Prioritized replay beside other buffers: cycles of adding 50 rows, sampling 512 and updating their 512 priorities, and adds alone.

The other side is `peers/bench_replay.py`, unchanged, in a process of its own on the same core, told when to work. Its "numpy" (a binary
sum tree by hand) needs nothing; the libraries run where `PEERS_PYTHON` (cpprb, tianshou) and `RLLIB_PYTHON` (ray[rllib]) name the
Python of an environment that has them, see `peers/README.md`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.pairs import Row, compare
from flowrl.batch import Array, SampleBatch
from flowrl.replay import PrioritizedReplayBuffer

SCRIPT = Path(__file__).parent / "peers" / "bench_replay.py"
NUM_ADDED, NUM_SAMPLED = 50, 512
TURN_S = 0.3
"""How long a side works before it is the other's turn."""

SETTINGS = {
    ("vec4", 100_000): "4 floats, 1e5 rows",
    ("vec4", 1_000_000): "4 floats, 1e6 rows",
    ("atari", 50_000): "84x84x4 bytes, 5e4 rows",
}
LEAST = {"numpy": 1.0, "cpprb": 0.9, "tianshou": 1.2, "rllib260": 30.0}
LEAST_FOR_IMAGES = LEAST | {"rllib260": 3.0}
LEAST_ADDS = {"cpprb": 0.25}

PEER = """
import sys
sys.argv = sys.argv[1:]
script = {"__name__": "__main__"}
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"), script)
print("done", flush=True)
for line in sys.stdin:
    name, times = line.split()
    for _ in range(int(times)):
        script[name]()
    print("done", flush=True)
"""
"""Runs the script for a moment, which fills its buffer, and then its functions as often as it is told."""


class Peer:
    """One backend of the script, filled, waiting in a process of its own."""

    def __init__(self, python: str, backend: str, capacity: int, observations: str) -> None:
        self._name = backend
        args = [backend, str(capacity), observations, str(NUM_SAMPLED), str(NUM_ADDED), "0.01"]
        env = {**os.environ, "PYTHONPATH": str(SCRIPT.parent), "ROUT": os.devnull, "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            [python, "-c", PEER, SCRIPT, *args],
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._wait()

    def work(self, name: str, times: int) -> None:
        """Call the script's function so often."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name} {times}\n")
        self._process.stdin.flush()
        self._wait()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "done\n":
                return
        raise RuntimeError(f"{self._name} ended: run {SCRIPT.name} by hand to see why")


class Ours:
    """The same rows in flowrl's buffer, full, and the same two functions."""

    def __init__(self, capacity: int, observations: str) -> None:
        rng = np.random.default_rng(0)
        obs: Array
        if observations == "atari":
            obs = rng.integers(0, 255, (NUM_ADDED, 84, 84, 4)).astype(np.uint8)
        else:
            obs = rng.random((NUM_ADDED, 4), dtype=np.float32)
        columns = {
            "obs": obs,
            "act": rng.integers(0, 2, NUM_ADDED),
            "rew": rng.random(NUM_ADDED).astype(np.float32),
            "next_obs": obs.copy(),
            "done": np.zeros(NUM_ADDED, bool),
        }
        self._batch = SampleBatch(columns)
        self._priorities = rng.random(NUM_SAMPLED) + 1e-3
        self._buffer = PrioritizedReplayBuffer(capacity)
        while len(self._buffer) < capacity:
            self.one_add()

    def work(self, name: str, times: int) -> None:
        """As the peer's."""
        act = {"one_add": self.one_add, "cyc": self.cycle}[name]
        for _ in range(times):
            act()

    def one_add(self) -> None:
        self._buffer.add(self._batch)

    def cycle(self) -> None:
        self.one_add()
        batch_indexes = self._buffer.sample(NUM_SAMPLED)["batch_indexes"]
        self._buffer.update_priorities(batch_indexes, self._priorities)


def turn(side: Ours | Peer, name: str, items: int) -> Callable[[], int]:
    """A turn of about `TURN_S`, as a number of items."""
    times, elapsed_s = 1, 0.0
    while elapsed_s < TURN_S / 4:
        times *= 2
        start = time.perf_counter()
        side.work(name, times)
        elapsed_s = time.perf_counter() - start
    times = max(1, round(times * TURN_S / elapsed_s))

    def work() -> int:
        side.work(name, times)
        return times * items

    return work


@contextmanager
def one_core() -> Iterator[None]:
    """This process, and those that it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pythons() -> dict[str, str]:
    """Backend -> the Python that has it, for those that can run here."""
    peers, rllib = os.environ.get("PEERS_PYTHON"), os.environ.get("RLLIB_PYTHON")
    there = {"numpy": sys.executable, "cpprb": peers, "tianshou": peers, "rllib260": rllib}
    return {backend: python for backend, python in there.items() if python}


def run(num_pairs: int = 15) -> list[Row]:
    """Every setting against every backend that can run here."""
    rows: list[Row] = []
    with one_core():
        for (observations, capacity), text in SETTINGS.items():
            ours = Ours(capacity, observations)
            least = LEAST_FOR_IMAGES if observations == "atari" else LEAST
            for backend, python in pythons().items():
                peer = Peer(python, backend, capacity, observations)
                cycles = turn(peer, "cyc", 1), least[backend]
                rows += compare(f"replay cycles, {text}", turn(ours, "cyc", 1), {backend: cycles}, num_pairs)
                if backend in LEAST_ADDS:
                    adds = turn(peer, "one_add", NUM_ADDED), LEAST_ADDS[backend]
                    rows += compare(f"replay rows added, {text}", turn(ours, "one_add", NUM_ADDED), {backend: adds}, num_pairs)
                peer.close()
    return rows
