"""The same code in a process with another number of threads: what must not depend on it is compared."""

import os
import subprocess
import sys
from pathlib import Path

import torch


def with_other_threads(code: str) -> str:
    """What `code` prints in a fresh process with two threads for numpy and torch if this one has one, else with one."""
    threads = "2" if torch.get_num_threads() == 1 else "1"
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    code = f"import torch; torch.set_num_threads({threads}); {code}"
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()
