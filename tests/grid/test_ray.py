"""Grids on a real Ray cluster of one machine, started here."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_grid import MADE, cell, told

from comad.errors import UserError
from comad.grid.cells import Cell
from comad.grid.local import Ended, Started, Waited
from comad.grid.remote import Needs, run_on_ray
from comad.runs.standing import look

pytest.importorskip("ray", reason="needs Ray; pip install 'comad[ray]' brings it")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

HEAD = """
import sys, ray
context = ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=sys.argv[1])
print("address", context.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""
"""A cluster of its own, on ports that are free, until standard input is closed."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a head with two processors, which ends with the process that holds it."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray-") as folder:  # a short name: sockets lie in it
        patch.setenv("RAY_AUTH_MODE", "disabled")  # it answers this machine alone, and leaves no token in the home folder
        holder = subprocess.Popen([sys.executable, "-c", HEAD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert holder.stdout
        address = next(line for line in holder.stdout if line.startswith("address "))
        yield address.split()[1]
        holder.communicate()


def command(out: Path, cell: Cell) -> list[str]:
    return [sys.executable, str(MADE), str(cell.folder(out)), cell.variant.name.replace("-", " ")]


def test_runs_are_made_on_the_cluster_crashes_are_tried_again_and_misuse_is_not(cluster: str, tmp_path: Path) -> None:
    cells = [cell("plain"), cell("crash once"), cell("misuse")]
    events = told(
        list(run_on_ray(cells, lambda cell: command(tmp_path, cell), lambda cell: tmp_path / "logs" / cell.variant.name, cluster, Needs()))
    )
    assert [event for event in events if isinstance(event, Started)] == [*(Started(one, 1) for one in cells), Started(cells[1], 2)]
    ends = [event for event in events if isinstance(event, Ended)]
    assert {(end.cell.variant.name, end.outcome) for end in ends} == {
        ("plain", "finished"),
        ("crash-once", "crashed"),
        ("crash-once", "finished"),
        ("misuse", "failed"),
    }
    standing = look(cells[1].folder(tmp_path))
    assert standing is not None and standing.finished


def test_a_run_whose_worker_is_killed_is_started_again(cluster: str, tmp_path: Path) -> None:
    slow = cell("slow once")
    killed = False
    for event in run_on_ray([slow], lambda cell: command(tmp_path, cell), lambda cell: tmp_path / "log", cluster, Needs()):
        begun = tmp_path / "s-q" / "m-slow-once-seed0" / "logs.jsonl"
        if isinstance(event, Waited) and not killed and begun.exists() and begun.read_text():
            run = int((begun.parent / "lock").read_text())
            worker = int(Path(f"/proc/{run}/stat").read_text().rsplit(")", 1)[1].split()[1])
            os.kill(worker, signal.SIGKILL)
            killed = True
        if isinstance(event, Ended):
            assert event.outcome == "finished"
    standing = look(slow.folder(tmp_path))
    assert killed and standing is not None and standing.finished


def test_no_cluster_is_said_to_be_no_cluster_without_asking_ray_which_would_try_for_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", lambda **options: pytest.fail("Ray was asked"))
    with pytest.raises(UserError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'"):
        next(run_on_ray([cell("plain")], lambda cell: [], lambda cell: tmp_path / "log", "127.0.0.1:1", Needs()))
