"""`comad portrait` as a person meets it."""

import json
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from finished import LAST_POSITION, STREAM, make_run, record_all
from habit import Habit
from jax.experimental.compilation_cache import compilation_cache

from comad.cli import main
from comad.methods import METHODS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Runs of two depths, one of them not finished."""
    monkeypatch.setenv("COMAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(METHODS, "habit", Habit())
    data = record_all(tmp_path / "data")
    for name, tasks in (("habit-seed0", 2), ("deep/habit-seed1", 2), ("deep/half", 1)):
        make_run(tmp_path / "runs" / name, data, "habit", Habit(), tasks)
    before = jax.config.values["jax_compilation_cache_dir"]
    yield tmp_path / "runs"
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def test_every_finished_run_gets_its_portrait(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = folder / "habit-seed0" / "portrait.json", folder / "deep" / "habit-seed1" / "portrait.json"
    assert main(["portrait", str(first.parent), str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Named twice, drawn once; a run that is not finished does not keep the others from being drawn.
    assert [line.split(":")[0] for line in lines] == [f"wrote {first}", f"wrote {second}", "left out"]
    assert lines[0].endswith(f": 2 tasks, {first.stat().st_size / 1000:.0f} kB") and "half is not finished" in lines[2]
    found = json.loads(first.read_text())
    assert found["position"] == LAST_POSITION and [shown["task"] for shown in found["replays"]] == [task.name for task in STREAM.tasks]
    made = first.read_bytes()
    first.write_text('{"version": 0}')
    assert main(["portrait", str(first.parent)]) == 0 and first.read_bytes() == made


def test_nothing_to_draw_is_an_error(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {
        str(folder / "deep" / "half"): "half is not finished: the evaluation 0 of task 1 is missing; train it to its end first",
        str(tmp_path / "data"): "there is no run in",
        str(tmp_path / "nowhere"): "there is no folder",
    }
    for path, why in wrong.items():
        assert main(["portrait", path]) == 2
        out, err = capsys.readouterr()
        assert out == "" and why in err and err.count("\n") == 1
    assert main(["portrait"]) == 2 and "whose portrait?" in capsys.readouterr().err
    assert not list(folder.rglob("portrait.json"))
