"""`comad bench grid`: what is there is kept, what is another run is refused, what is missing is made."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comad.cli import grid as verb
from comad.cli import main
from comad.grid.cells import Grid
from comad.grid.local import Ended, Started, Waited
from comad.methods.ft import Ft
from comad.methods.plain import Learner
from comad.settings import settings

TASKS = [{"name": name, "env": name.lower()} for name in ("CN-2", "CN-3", "CN-4", "CN-5")]
BUDGET = {"updates": 5000, "evaluations": 20, "episodes": 32, "batch": 32}
WORDS = ["bench", "grid", "--streams", "cn", "--methods", "ft", "--seeds", "0", "1", "--out", "runs"]


def place(seed: int, **other: Any) -> None:
    """A finished run of FT on CN, as its folder tells it."""
    folder = Path(f"runs/cn-expert/ft-seed{seed}")
    folder.mkdir(parents=True)
    made = settings(Ft(Learner(recurrent=True)))  # what the world decided is written down
    identity = {"method": "ft", "settings": made, "stream": "cn", "quality": "expert", "seed": seed, "budget": BUDGET, **other}
    (folder / "settings.json").write_text(json.dumps({"identity": {"tasks": TASKS, **identity}}))
    (folder / "heads.jsonl").write_text("")
    (folder / "logs.jsonl").write_text('{"task": 3, "update": 5000}\n')
    (folder / "scores.jsonl").write_text('{"task": 3, "point": 20, "sampled": {"score": [1.0, 0.5, 0.5, 0.0]}}\n')


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_finished_runs_are_not_made_again_and_failures_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place(0)
    asked = []

    def make(self: Any, grid: Grid, cells: Any) -> Any:
        asked.extend(cells)
        for cell in cells:
            yield Started(cell, 1)
            yield Waited()
            yield Ended(cell, "failed", "comad: there is no dataset")

    monkeypatch.setattr(verb.RunGrid, "make", make)
    assert main(WORDS) == 1
    assert [cell.seed for cell in asked] == [1]
    out, err = capsys.readouterr()
    assert "P 50.0" in out and "cn-expert/ft-seed1 failed: comad: there is no dataset" in out and "cn-expert/ft-seed1 begins" in err
    assert "1 of 2 runs in runs are finished and kept" in out
    place(1)
    assert main(WORDS) == 0 and [cell.seed for cell in asked] == [1]
    out, err = capsys.readouterr()
    assert "2 of 2 runs in runs are finished and kept" in out and err == ""


def test_time_left_does_not_count_what_starting_took(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Five minutes until the first 50 updates of 20,000, then 100 a minute."""
    place(0)
    log, clock = Path("runs/cn-expert/ft-seed0/logs.jsonl"), [1000.0]
    log.unlink(missing_ok=True)
    log.with_name("scores.jsonl").write_text("")
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    (cell,) = Grid(streams=("cn",), methods=("ft",), seeds=(0,)).cells()
    board = verb.Board([cell], Path("runs"))
    board.note(Started(cell, 1))
    for seconds, update in ((300, 50), (60, 150)):
        log.write_text(f'{{"task": 0, "update": {update}}}\n')
        clock[0] += seconds
        board.note(Waited())
    first, second = capsys.readouterr().err.splitlines()[-2:]
    assert "left" not in first and "about 198 min left" in second


def test_time_left_is_told_from_where_a_run_went_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A log may be ahead of the checkpoint from which its run goes on: 3,500 updates, then 3,000 again, then 100 a minute."""
    place(0)
    log, clock = Path("runs/cn-expert/ft-seed0/logs.jsonl"), [1000.0]
    log.write_text('{"task": 1, "update": 3500}\n')
    log.with_name("scores.jsonl").write_text("")
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    (cell,) = Grid(streams=("cn",), methods=("ft",), seeds=(0,)).cells()
    board = verb.Board([cell], Path("runs"))
    board.note(Started(cell, 1))
    for update in (3000, 3100):
        log.write_text(f'{{"task": 1, "update": {update}}}\n')
        clock[0] += 60
        board.note(Waited())
    assert "about 119 min left" in capsys.readouterr().err.splitlines()[-1]


def test_lines_of_progress_fit_and_come_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    grid = Grid(streams=("lbf",), qualities=("medium",), methods=("ft", "comad-plus"))
    cells = list(grid.cells())
    board = verb.Board(cells, Path("runs"))
    for cell in cells:
        board.note(Started(cell, 1))
    begun = ["lbf-medium/ft-seed0 begins", "lbf-medium/comad-plus-seed0 begins"]
    assert capsys.readouterr().err.splitlines() == begun
    lines = {}
    for second in range(1, 121):
        clock[0] += 1
        board.note(Waited())
        if line := capsys.readouterr().err:
            lines[second] = line
    assert max(np.diff([0, *lines, 120])) <= 5 and max(map(len, lines.values())) <= 80
    assert lines[4] == "0 of 2 runs finished after 4 s; ft begins, comad-plus begins\n"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"budget": {**BUDGET, "updates": 20}}, "holds another run: budget.updates is 20 there and 5000 here; choose another --out"),
        ({"settings": {}}, "holds another run: settings.learner is absent there"),
        ({"quality": "medium"}, 'holds another run: quality is "medium" there and "expert" here; choose another --out'),
    ],
)
def test_another_run_of_the_same_name_is_refused(other: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    place(0, **other)
    assert main(WORDS) == 2
    assert said in capsys.readouterr().err


def test_data_that_is_not_there_is_named_before_any_run_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 2 and not Path("runs").exists()
    assert "there is no dataset data/cn-2/expert; 'comad collect cn --quality expert' makes it" in capsys.readouterr().err
    assert main([*WORDS, "--qualities", "good"]) == 2
    assert "there are expert, medium, mixed, and what 'comad data import' took over" in capsys.readouterr().err
    assert main(["bench", "grid", "--streams", "cn:CN-3,CN-2", "--methods", "ft"]) == 2
    assert "'comad collect --tasks cn-3 cn-2 --quality expert' makes it" in capsys.readouterr().err


def test_without_ray_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    assert main([*WORDS, "--ray", "auto"]) == 2
    assert "Ray is not installed here; pip install 'comad[ray]' brings it" in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(Path(__file__).parents[2].glob("grids/*.toml")), ids=lambda file: file.stem)
def test_grids_that_come_with_the_project_can_be_made_and_hold_as_many_runs_as_they_say(file: Path) -> None:
    cells = list(verb.RunGrid(file=file).grid().cells())
    told = re.search(r"(\d+) (short )?runs", file.read_text())
    assert cells and (told is None or int(told[1]) == len(cells))
