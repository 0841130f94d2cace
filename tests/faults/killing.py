"""Processes that are made to die somewhere, and what they leave behind."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from comad import failpoints

PROJECT = Path(__file__).parents[2]
KILLED = -signal.SIGKILL


def killed(work: Callable[[], object], failpoint: str) -> int:
    """Do some work in a copy of this process that dies at a failpoint; its exit code. Without JAX, whose threads are not copied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python both warn of what could go wrong if the copy used JAX
        child = os.fork()
    if child == 0:
        os.environ[failpoints.VARIABLE] = failpoint
        failpoints._reached.clear()
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_script(script: Path, *arguments: str, failpoint: str = "", **environment: str) -> int:
    """Run a program of the tests to its end or its death; its exit code."""
    there = {**os.environ, failpoints.VARIABLE: failpoint, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}", **environment}
    return subprocess.run([sys.executable, str(script), *arguments], env=there, check=False, stdout=subprocess.DEVNULL).returncode


def leftovers(folder: Path) -> list[Path]:
    """Every hidden file or folder: all that is half written is hidden."""
    return [path for path in folder.rglob(".*")]
