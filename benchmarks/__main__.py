"""All benchmarks, side by side with their peers: `python -m benchmarks [local] [acting] [replay] [dqn] [shards] [a3c] [apex] [idle]
[apex_idle] [peers]`; without a word, all. `--seconds 60`: how long apex_idle waits, in place of five minutes.

"peers" runs the scripts in `benchmarks/peers` once, unchanged, so that their own figures stand beside the pairs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from pathlib import Path

import ray

from benchmarks import acting, apex_idle, asynchronous, dqn, idle, local, replay, shards

ALL = ["local", "acting", "replay", "dqn", "shards", "a3c", "apex", "idle", "apex_idle", "peers"]
ON_RAY = {"shards", "a3c", "apex", "idle", "apex_idle"}
PEERS = Path(__file__).parent / "peers"


def unchanged(script: str, *args: str) -> None:
    """One run of a peer's script as it is."""
    print(f"--- {script} {' '.join(args)}, unchanged", flush=True)
    subprocess.run([sys.executable, PEERS / script, *args], check=False, env={**os.environ, "PYTHONWARNINGS": "ignore"})


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("wanted", nargs="*", metavar="benchmark")
    parser.add_argument("--seconds", type=float, default=apex_idle.SECONDS)
    options = parser.parse_args(arguments)
    wanted = options.wanted
    if unknown := set(wanted) - set(ALL):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    chosen = wanted or ALL
    missed = []
    if "local" in chosen:
        missed += [row for row in local.run() if row.ratio < row.at_least]
    if "acting" in chosen:
        missed += [row for row in acting.run() if row.ratio < row.at_least]
    if "replay" in chosen:
        missed += [row for row in replay.run() if row.ratio < row.at_least]
    if "dqn" in chosen:
        missed += [row for row in dqn.run() if row.ratio < row.at_least]
    if ON_RAY.intersection(chosen):
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    if "shards" in chosen:
        missed += [row for row in shards.run() if row.ratio < row.at_least]
    if "a3c" in chosen:
        missed += [row for row in asynchronous.run_a3c() if row.ratio < row.at_least]
    if "apex" in chosen:
        missed += [row for row in asynchronous.run_apex() if row.ratio < row.at_least]
    if "idle" in chosen:
        idle.run()
    if "apex_idle" in chosen:
        apex_idle.run(options.seconds)
    if ray.is_initialized():
        ray.shutdown()
    if "peers" in chosen:
        for what in ("local", "union", "par", "payload"):
            unchanged("bench_iter.py", what)
        unchanged("bench_idle.py")
    for row in missed:
        print("missed:", row)


if __name__ == "__main__":
    main(sys.argv[1:])
