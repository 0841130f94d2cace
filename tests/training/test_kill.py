"""The promise of exactness, kept by the whole program: killed at any moment and started again, a run ends in the same bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import record
from reliability import tried

from comad.datasets import library
from comad.envs.navigation import Navigation

WORLD = Navigation(2, 6, limit=9)
METHODS = ("ft", "comad", "comad-plus", "rehearsal", "ewc")
KILLS = int(os.environ.get("COMAD_KILLS", "20"))
"""Of each method."""
PROJECT = Path(__file__).parents[2]


@pytest.mark.promise("killed-run")
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_kills_at_random_moments_change_nothing(tmp_path: Path, method: str) -> None:
    record(library.place(WORLD.spec.env, "random", tmp_path / "data"), WORLD)
    names = [WORLD.spec.env] * 2  # one task twice: half the programs to load, and so most kills come while it learns
    command = [sys.executable, str(Path(__file__).with_name("repeatedly.py")), method, str(tmp_path), str(KILLS), "0", *names]
    environment = {**os.environ, "COMAD_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["same"] and found["killed"] == KILLS
    assert found["saved"] > KILLS / 4, "most kills came before anything was saved, which tries little"
    tried(KILLS)
