"""No busy wait (C9): when nothing is ready the driver sleeps. CPU shares and latencies are measured in `benchmarks/`."""

from __future__ import annotations

import ast
import queue
import threading
import time
from pathlib import Path

import pytest

import flowrl.iter
from flowrl.ops import Dequeue
from tests.iter.workers import slowly

MODULES = sorted(Path(flowrl.iter.__file__).parent.glob("*.py"))
WAITS = {"wait", "wait_for", "sleep", "get", "put", "join", "acquire", "peek", "move"}
SHORTEST_S = 0.1


def constants_of(tree):
    """Module constants that are numbers."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def seconds(node, constants):
    """All times that an expression of a timeout may stand for: constants, also behind names and conditions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return [node.value]
    if isinstance(node, ast.Name) and node.id in constants:
        return [constants[node.id]]
    if isinstance(node, ast.IfExp):
        return seconds(node.body, constants) + seconds(node.orelse, constants)
    return []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_timed_wait_is_below_100_ms(path):
    """A look (timeout 0) is no wait; each other constant that goes into something that waits is at least 100 ms."""
    tree = ast.parse(path.read_text())
    constants = constants_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            timeouts = [keyword.value for keyword in node.keywords if keyword.arg and "timeout" in keyword.arg]
            if name in WAITS:
                timeouts += node.args
            for timeout in timeouts:
                for value in seconds(timeout, constants):
                    lone_count = name in ("wait", "peek") and isinstance(timeout, ast.Constant) and isinstance(value, int)
                    assert value == 0 or value >= SHORTEST_S or lone_count, f"{path.name}:{node.lineno} waits {value} s"


def test_the_check_above_would_see_a_short_wait():
    tree = ast.parse("POLL_S = 0.002\nevent.wait(POLL_S if x else None)\ntime.sleep(0.01)")
    constants = constants_of(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert sorted(value for call in calls for arg in call.args for value in seconds(arg, constants)) == [0.002, 0.01]


def cpu_of_waiting_for(stream, count):
    wall, cpu = time.monotonic(), time.process_time()
    for _ in range(count):
        next(stream)
    return (time.process_time() - cpu) / (time.monotonic() - wall)


def test_an_idle_plan_of_calls_takes_little_cpu(on_ray):
    """Two branches at two items a second; a polling driver takes from 40 to 100 % of a core, the bound here is generous."""
    shards = on_ray.shards(slowly(range(9), 0.5), slowly(range(9), 0.5))
    with shards.get_shard(0).union(shards.get_shard(1)).run() as stream:
        next(stream)
        assert cpu_of_waiting_for(stream, 5) < 0.2


def test_an_idle_plan_of_calls_and_a_thread_takes_little_cpu(on_ray):
    shared = queue.Queue(4)
    with on_ray.shards(slowly(range(9), 0.5)).gather_async().union(Dequeue(shared)).run() as stream:
        next(stream)
        timer = threading.Timer(0.7, shared.put, ["late"])
        timer.start()
        assert cpu_of_waiting_for(stream, 3) < 0.2
        timer.join()


def test_a_plan_that_waits_for_a_thread_alone_takes_little_cpu():
    shared = queue.Queue(4)
    with Dequeue(shared).run() as stream:
        timer = threading.Timer(1.0, shared.put, ["late"])
        timer.start()
        assert cpu_of_waiting_for(stream, 1) < 0.1
        timer.join()
