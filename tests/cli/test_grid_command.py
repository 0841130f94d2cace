"""`comad bench grid`: what is there is kept, what is another run is refused, what is missing is made."""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import record

from comad import envs
from comad.cli import grid as verb
from comad.cli import kept, main
from comad.cli.tasks import find_stream
from comad.datasets import library
from comad.datasets.store import Dataset, open_dataset
from comad.envs import navigation
from comad.grid.cells import Grid
from comad.grid.local import Ended, Started, Waited
from comad.methods import find
from comad.runs.seal import seal_run
from comad.training.loop import Budget
from comad.training.provenance import make_identity

BUDGET = {"updates": 5000, "evaluations": 20, "episodes": 32, "batch": 32}
WORDS = ["bench", "grid", "--streams", "cn", "--methods", "ft", "--seeds", "0", "1", "--out", "runs"]
TINY = "cn-2-6x6-9t-2r,cn-3-6x6-9t-2r"
OF_TINY = ["bench", "grid", "--streams", TINY, "--methods", "ft", "--seeds", "0", "1"]


def place(seed: int, stream: str = "cn", data: Sequence[Dataset] = (), **other: Any) -> None:
    """A finished run of FT, by default on CN, as its folder tells it."""
    found, folder = find_stream(stream), Path(f"runs/{stream}-expert/ft-seed{seed}")
    folder.mkdir(parents=True)
    specs = tuple(envs.find(task.env).spec for task in found.tasks)
    method = replace(find("ft"), recurrent=True)  # what the environment decided is written down
    learned = dict.fromkeys((spec.env for spec in specs), "0" * 64)
    learned |= {one.spec.env: one.content for one in data}
    identity = make_identity("ft", method, found, "expert", specs, learned, seed, Budget(**BUDGET))
    (folder / "settings.json").write_text(json.dumps({"identity": {**identity, **other}}))
    (folder / "heads.jsonl").write_text("")
    last = len(specs) - 1
    played = {"score": [1.0, *[0.5] * (last - 1), 0.0]}
    (folder / "logs.jsonl").write_text(f'{{"task": {last}, "update": 5000}}\n')
    evaluated = {"task": last, "point": 20, "sampled": played}
    (folder / "scores.jsonl").write_text(json.dumps(evaluated) + "\n")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def record_tiny(seed: int) -> list[Dataset]:
    """Data of the small stream where the grid looks for it."""
    places = {name: library.place(name, "expert") for name in TINY.split(",")}
    return [record(place, envs.make(name), 4, seed) for name, place in places.items()]


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
    unknown = "the data of 2 of them could not be compared: there is no dataset data/cn-2/expert"
    assert f"{unknown} (4 are missing)\n" in out


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


def test_a_damaged_run_is_a_failure_of_its_own_and_the_others_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        place(seed)
        seal_run(Path(f"runs/cn-expert/ft-seed{seed}"))
    scores = Path("runs/cn-expert/ft-seed0/scores.jsonl")
    scores.write_text(scores.read_text().replace("1.0", "0.9"))
    assert main(WORDS) == 1
    out, _ = capsys.readouterr()
    assert "P 50.0" in out and "1 of 2 runs in runs are finished and kept" in out
    assert "cn-expert/ft-seed0 failed: " in out and "scores.jsonl is damaged" in out


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"budget": {**BUDGET, "updates": 20}}, "holds another run: budget.updates is 20 there and 5000 here; choose another --out"),
        ({"settings": {}}, "holds another run: settings.clip is absent there"),
        ({"settings": {"learner": {}}}, "was made by comad 0.1, whose checkpoints hold arrays by other names"),
        ({"quality": "medium"}, 'holds another run: quality is "medium" there and "expert" here; choose another --out'),
        ({"metric": "success"}, 'another run: metric is "success" there and "return" here; choose'),
        ({"tasks": [{}] * 4}, 'another run: tasks.0.env is absent there and "cn-2" here, tasks.0.'),
    ],
)
def test_another_run_of_the_same_name_is_refused(other: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    place(0, **other)
    assert main(WORDS) == 2
    assert said in capsys.readouterr().err


def test_runs_of_data_that_was_recorded_anew_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded = record_tiny(seed=0)
    for seed in (0, 1):
        place(seed, TINY, recorded)
    opened: list[Path] = []

    def note(path: Path) -> Dataset:
        opened.append(path)
        return open_dataset(path)

    monkeypatch.setattr(kept, "open_dataset", note)
    assert main(OF_TINY) == 0
    out, _ = capsys.readouterr()
    assert "2 of 2 runs in runs are finished and kept" in out and "could not be compared" not in out
    assert opened == [one.path for one in recorded], "each once, however many runs learned from it"
    first, second = record_tiny(seed=1)
    shutil.rmtree(first.path)
    assert main(OF_TINY) == 2
    out, err = capsys.readouterr()
    hashes = f'"{recorded[1].content}" there and "{second.content}" here'
    said = f"holds another run: datasets.{second.spec.env} is {hashes}; choose another --out\n"
    assert err == f"comad: {Path.cwd()}/runs/{TINY}-expert/ft-seed0 {said}" and out == ""


def test_runs_under_other_rules_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place(0)
    before = envs.find("cn-2").spec.rules_hash
    monkeypatch.setattr(navigation, "VERSION", navigation.VERSION + 1)
    now = envs.find("cn-2").spec.rules_hash
    assert main(WORDS) == 2
    said = f'holds another run: worlds.cn-2 is "{before}" there and "{now}" here, worlds.cn-3 is'
    assert said in capsys.readouterr().err


def test_damaged_data_is_named_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    place(0)
    Path("data/cn-3/expert").mkdir(parents=True)
    Path("data/cn-3/expert/manifest.json").write_text('{"format": 1}')
    assert main(WORDS) == 2
    why = "data/cn-3/expert/manifest.json: not a dataset's manifest (KeyError: 'seal')"
    assert capsys.readouterr().err == f"comad: {why}\n"


@pytest.mark.promise("option-ranges")
def test_numbers_that_fit_no_run_are_refused_before_any_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--updates", "3", "--evaluations", "20"]) == 2
    assert capsys.readouterr().err == "comad: 20 evaluations do not fit into 3 updates; give fewer evaluations or more updates\n"
    variant = '[[variants]]\nname = "x"\nmethod = "ft"\noptions = { learning_rate = true }\n'
    Path("grid.toml").write_text('streams = ["cn"]\nmethods = []\n' + variant)
    assert main(["bench", "grid", "grid.toml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("comad: grid.toml: ft-x: ft cannot be given --learning-rate") and said.count("\n") == 1
    assert not Path("runs").exists()


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
