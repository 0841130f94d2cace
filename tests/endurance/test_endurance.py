"""Long and many: a run of hours does not grow, and a grid of hundreds leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import record
from reliability import tried

from comad.datasets import library
from comad.envs import make
from comad.runs.standing import look

ENDURING = Path(__file__).with_name("enduring.py")
UPDATES = int(os.environ.get("COMAD_ENDURANCE_UPDATES", "50000"))
EVALUATIONS = int(os.environ.get("COMAD_ENDURANCE_EVALUATIONS", "200"))
RUNS = int(os.environ.get("COMAD_ENDURANCE_RUNS", "200"))
LOG = os.environ.get("COMAD_ENDURANCE_LOG")
MOST_GROWTH = 0.02


@pytest.mark.slow
@pytest.mark.promise("endurance")
def test_a_long_run_does_not_grow(tmp_path: Path) -> None:
    if LOG:  # what the program below said when somebody ran it for half an hour
        said = Path(LOG).read_text()
    else:
        environment = {**os.environ, "XLA_FLAGS": "", "COMAD_CACHE": str(tmp_path / "cache")}
        command = [sys.executable, str(ENDURING), str(tmp_path), str(UPDATES), str(EVALUATIONS)]
        said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    held = [json.loads(line) for line in said.splitlines()]
    assert [now["point"] for now in held] == list(range(EVALUATIONS + 1))
    settled = held[EVALUATIONS // 10 :]
    assert max(now["bytes"] for now in settled) < (1 + MOST_GROWTH) * settled[0]["bytes"]
    for name in ("files", "threads", "python_threads"):
        assert max(now[name] for now in settled) <= settled[0][name]
    tried(UPDATES)


def processes_of(folder: Path) -> list[str]:
    """Command lines of all processes that have to do with a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.slow
@pytest.mark.promise("clean-grid")
def test_a_grid_of_many_runs_leaves_nothing_behind(tmp_path: Path) -> None:
    record(library.place("cn-2", "random", tmp_path / "data"), make("cn-2"))
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "COMAD_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
    quick = "--streams cn-2 --qualities random --methods ft --updates 1 --evaluations 1 --episodes 1 --batch 1"
    words = [*quick.split(), "--seeds", *map(str, range(RUNS)), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "comad", "bench", "grid", *words], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for seed in range(RUNS):
        standing = look(tmp_path / "out" / "cn-2-random" / f"ft-seed{seed}")
        assert standing is not None and standing.finished
        tried()
    assert processes_of(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path for name in ("out", "data") for path in (tmp_path / name).rglob(".*")] == []
