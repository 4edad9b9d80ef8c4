"""What waiting costs: CPU of the driver while a plan is idle, how soon it wakes, and memory behind a slow consumer."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import ray

from flowrl.iter import LocalIterator, from_iterators

NUM_PAIRS = 15
MEMORY_S = 300.0
MB = 2**20


def ticks(interval_s: float) -> Callable[[], Iterator[float]]:
    """The time, each so many seconds."""

    def generate() -> Iterator[float]:
        while True:
            time.sleep(interval_s)
            yield time.time()

    return generate


def idle_union(interval_s: float) -> LocalIterator[float]:
    one, other = (from_iterators([ticks(interval_s)]).gather_async() for _ in range(2))
    return one.union(other)


def cpu_share(work: Callable[[], None]) -> float:
    """Percent of a core that this process takes meanwhile, all its threads together."""
    cpu, clock = time.process_time(), time.perf_counter()
    work()
    return 100 * (time.process_time() - cpu) / (time.perf_counter() - clock)


def idle_cpu() -> None:
    """An async union of two branches at one item a second each, against the same process with Ray idle, in turn."""
    with idle_union(1.0).run(engine="ray") as stream:
        items = iter(stream)
        next(items)
        over = []
        for _ in range(NUM_PAIRS):
            busy = cpu_share(lambda: [next(items) for _ in range(6)] and None)
            over.append(busy - cpu_share(lambda: time.sleep(3.0)))
    print(
        f"idle async union, one item a second a branch: {statistics.median(over):+.2f} % of a core "
        f"[{min(over):.2f}..{max(over):.2f}] over Ray idle, at most +2: "
        f"{'ok' if statistics.median(over) < 2 else 'MISSED'}"
    )


def wake_up() -> None:
    """How long after it was made an item is in the consumer's hands, at 40 items a second."""
    with idle_union(0.05).run(engine="ray") as stream:
        items = iter(stream)
        for _ in range(20):
            next(items)
        late_ms = sorted(1e3 * (time.time() - next_made) for next_made in itertools.islice(items, 600))
    p50, p95 = late_ms[len(late_ms) // 2], late_ms[int(len(late_ms) * 0.95)]
    print(f"wake-up at 40 items a second: p50 {p50:.2f} ms, p95 {p95:.2f} ms of {len(late_ms)}, at most 5: {'ok' if p95 < 5 else 'MISSED'}")


def chunks() -> Iterator[np.ndarray]:
    for index in itertools.count():
        yield np.full(2**15, index % 256, np.uint8)


def resident_bytes(pid: str) -> dict[str, int]:
    """Resident memory of a process: all of it, and its own part, without pages of Ray's shared store that it has touched."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.startswith(("VmRSS", "RssShmem"))}
    return {"all": 1024 * kilobytes["VmRSS"], "own": 1024 * (kilobytes["VmRSS"] - kilobytes["RssShmem"])}


def memory() -> dict[str, dict[str, int]]:
    """Of this process, and of the shards' processes together."""
    sizes = {"driver": resident_bytes("self"), "shards": {"all": 0, "own": 0}}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::ParallelIteratorWorker"):
                for kind, size in resident_bytes(folder.name).items():
                    sizes["shards"][kind] += size
        except OSError:
            continue
    return sizes


def slow_consumer(seconds: float = MEMORY_S) -> None:
    """A fast source, a consumer that takes 5 ms an item: growth after the first fifth (a minute of five)."""
    plan = from_iterators([chunks, chunks]).gather_async(batch_ms=5, num_async=4)
    with plan.run(engine="ray") as stream:
        start, before = time.monotonic(), None
        for _ in stream:
            time.sleep(0.005)
            spent = time.monotonic() - start
            if before is None and spent > seconds / 5:
                before = memory()
            if spent > seconds:
                break
        assert before is not None
        after = memory()
    grown = {who: {kind: (after[who][kind] - before[who][kind]) / MB for kind in after[who]} for who in after}
    verdict = "ok" if grown["driver"]["all"] < 20 and grown["shards"]["own"] < 20 else "MISSED"
    print(
        f"fast source, slow consumer, {seconds:.0f} s: after the first {seconds / 5:.0f} s RSS grew {grown['driver']['all']:+.1f} "
        "MB in the driver; "
        f"in the shards {grown['shards']['own']:+.1f} MB of their own, {grown['shards']['all']:+.1f} MB with the shared store; at "
        f"most 20: {verdict}"
    )


def run() -> None:
    if not ray.is_initialized():
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    idle_cpu()
    wake_up()
    slow_consumer()
