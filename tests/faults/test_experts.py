"""A training of experts, killed anywhere or damaged anyhow, goes on from the newest state that can be relied on, in the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from killing import KILLED, PROJECT
from reliability import tried

from comad.failpoints import FILE_POINTS, RUN_POINTS

TEACHING = Path(__file__).with_name("teaching.py")
ONCE = ("after-lock", "after-settings", "after-truncation")
POINTS = [point for point in (*RUN_POINTS, *FILE_POINTS) if point not in ("while-clearing", "while-deleting")]


def teach(folder: Path, *points: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, str(TEACHING), str(folder), *points], env=environment, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


@pytest.mark.promise("killed-expert")
@pytest.mark.parametrize("points", [["half-line:2", "before-name:4"], pytest.param(POINTS, marks=pytest.mark.slow)])
def test_killed_at_a_failpoint_it_ends_in_the_same_bits(tmp_path: Path, points: list[str]) -> None:
    if len(points) > 2:  # each the first and a later time
        points = [*points, *(f"{point}:3" for point in points if point not in ONCE), "while-deleting:1"]
    found = teach(tmp_path, *points)
    whole = found.pop("whole")
    assert len(whole["curve"]) == len(whole["teams"]) == 5
    for point, result in found.items():
        assert result.pop("code") == KILLED, f"{point} was never reached"
        assert (result.pop("left"), result.pop("told")) == ([], []), point
        assert result == whole, point
        tried()
