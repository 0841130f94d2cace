"""The promise of exactness, kept by the whole program: killed at any moment and started again, a run ends in the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recorded import record
from reliability import tried

from comad.datasets import library
from comad.envs.navigation import Navigation
from comad.files import sha256
from comad.runs import checkpoints

WORLDS = (Navigation(2, 6, limit=9), Navigation(3, 6, limit=9))
KILLS = 10
OPTIONS = "--quality random --updates 600 --evaluations 6 --episodes 8 --batch 8"


def start(folder: Path, run: str) -> "subprocess.Popen[bytes]":
    names = [env.spec.env for env in WORLDS]
    arguments = ["train", "comad", "--tasks", *names, *OPTIONS.split(), "--data", str(folder / "data"), "--out", str(folder / run)]
    # A cache of its own makes restarts quick, so that kills fall into training and not only into compiling.
    environment = {**os.environ, "COMAD_CACHE": str(folder / "cache")}
    return subprocess.Popen([sys.executable, "-m", "comad", *arguments], env=environment, stdout=subprocess.DEVNULL)


def final(folder: Path) -> dict[str, str]:
    found, skipped = checkpoints.newest(folder)
    assert found is not None and skipped == {}
    files = [found.path, *(folder / f"{name}.jsonl" for name in ("scores", "heads", "logs"))]
    return {path.name: sha256(path) for path in files}


@pytest.mark.promise("killed-run")
@pytest.mark.slow
def test_ten_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    for env in WORLDS:
        record(library.place(env.spec.env, "random", tmp_path / "data"), env)
    assert start(tmp_path, "warm").wait() == 0  # fills the cache
    began = time.monotonic()
    assert start(tmp_path, "whole").wait() == 0
    whole = time.monotonic() - began

    moments, killed = random.Random(0), 0
    while killed < KILLS:
        process = start(tmp_path, "killed")
        try:
            process.wait(timeout=moments.uniform(0.2, 0.9) * whole)
            assert process.returncode == 0
            (tmp_path / "killed").rename(tmp_path / f"early{killed}")  # finished before its time was up: once more from the start
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            tried()
    assert start(tmp_path, "killed").wait() == 0
    assert final(tmp_path / "killed") == final(tmp_path / "whole")
