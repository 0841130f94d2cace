"""A grid that is killed between two of its runs makes nothing twice and ends in the same bytes."""

from pathlib import Path

import gridding
import pytest
from counting import content
from gridding import CELLS, is_finished
from killing import KILLED, leftovers, run_script
from reliability import tried

from comad.failpoints import GRID_POINTS

SCRIPT = Path(gridding.__file__)
ALL = [f"{point}:{number}" for point in GRID_POINTS for number in range(1, len(CELLS) + 1)]

JOURNALS = ("logs.jsonl", "heads.jsonl", "scores.jsonl")
CHECKPOINT = ("checkpoints/000000001.json", "checkpoints/000000001.safetensors")
FINISHED = ("settings.json", "seal.json", *JOURNALS, *CHECKPOINT)


def runs(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(out).items() if not name.startswith("logs/")}


@pytest.mark.promise("killed-grid")
@pytest.mark.parametrize("points", [["run-started:2", "run-ended:3"], pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
def test_killed_at_a_failpoint_it_goes_on_with_what_is_missing(tmp_path: Path, points: list[str]) -> None:
    assert run_script(SCRIPT, str(tmp_path / "whole")) == 0
    whole = runs(tmp_path / "whole")
    assert sorted(whole) == sorted(str(cell.folder(Path()) / name) for cell in CELLS for name in FINISHED)
    for point in points:
        out = tmp_path / point.replace(":", "-")
        assert run_script(SCRIPT, str(out), failpoint=point) == KILLED
        kept = [file for cell in CELLS if is_finished(cell, out) for file in cell.folder(out).iterdir() if file.name != "lock"]
        before = {file: file.stat().st_mtime_ns for file in kept}
        assert run_script(SCRIPT, str(out)) == 0
        assert runs(out) == whole and leftovers(out) == []
        assert {file: file.stat().st_mtime_ns for file in kept} == before
        tried()
