"""One run at a time in a folder: who may open it, what is kept."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import SETTINGS, content, put, train

from comad import checkpoint
from comad.errors import UserError
from comad.runs.folder import read_settings
from comad.runs.record import find_runs, read_run
from comad.runs.run import Run, open_run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with open_run(tmp_path / "run", SETTINGS) as opened:
        assert opened.resume() is None
        yield opened


def identity(**changes: Any) -> dict[str, Any]:
    return {"identity": {"seed": 0, "tasks": ["a", "b"], "method": {"name": "ft", "learning_rate": 0.0005}, **changes}}


def test_arrays_come_back_and_lines_after_them_are_forgotten(tmp_path: Path) -> None:
    tree = {"weight": np.arange(3.0, dtype=np.float32)}
    with open_run(tmp_path, SETTINGS) as run:
        run.resume()
        run.append("heads", {"opened": 0})
        run.save(7, lambda path: checkpoint.save(path, tree))
        run.append("heads", {"opened": 1})
    assert [line["opened"] for line in read_run(tmp_path).heads] == [0, 1]
    with open_run(tmp_path, SETTINGS) as run:
        found = run.resume()
        assert found is not None and found.position == 7
        assert (np.asarray(checkpoint.load(found.path, tree)["weight"]) == tree["weight"]).all()
        assert [line["opened"] for line in read_run(tmp_path).heads] == [0]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["000000007.json", "000000007.safetensors"]


@pytest.mark.promise("not-finite")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_refused_and_leaves_no_trace(run: Run, value: float) -> None:
    run.append("logs", {"loss": 1.0})
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.append("logs", {"nested": [{"loss": value}]})
    assert read_run(run.folder).logs == [{"loss": 1.0}]


def test_nothing_is_written_before_it_is_known_where_to_go_on(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        with pytest.raises(RuntimeError, match=r"call resume\(\)"):
            run.append("logs", {})
        with pytest.raises(RuntimeError, match=r"call resume\(\)"):
            run.save(1, lambda path: path.touch())
    assert content(tmp_path).keys() == {"settings.json"}


def test_everything_is_on_the_disk_before_it_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    real_sync, real_replace, real_unlink = os.fsync, os.replace, os.unlink

    def sync(handle: int) -> None:
        inode = os.fstat(handle).st_ino
        events.append("sync " + next(path.name.partition(".json-")[0] for path in run.folder.rglob("*") if path.stat().st_ino == inode))
        real_sync(handle)

    def replace(old: Path, new: Path) -> None:
        events.append(f"name {Path(new).name}")
        real_replace(old, new)

    def unlink(path: Path) -> None:
        events.append(f"delete {Path(path).name}")
        real_unlink(path)

    for position in (1, 2):
        run.save(position, lambda path: path.touch())
    for name, call in (("sync", sync), ("replace", replace), ("unlink", unlink)):
        monkeypatch.setattr(f"os.{name.replace('sync', 'fsync')}", call)
    run.save(3, lambda path: path.touch())
    arrays = "000000003.safetensors"
    assert events[:3] == [f"sync .{arrays}", f"name {arrays}", "sync checkpoints"]
    assert sorted(events[3:6]) == ["sync heads.jsonl", "sync logs.jsonl", "sync scores.jsonl"]
    assert events[6:9] == ["sync .000000003", "name 000000003.json", "sync checkpoints"]
    old = "000000001"
    assert events[9:] == [f"delete {old}.safetensors", "sync checkpoints", f"delete {old}.json"]


def positions(run: Run) -> list[int]:
    return sorted(int(path.stem) for path in (run.folder / "checkpoints").glob("*.json"))


def test_the_last_two_and_the_milestones_are_kept(run: Run) -> None:
    kept = []
    for position in range(1, 7):
        run.save(position, lambda path: path.touch(), milestone=position == 2)
        kept.append(positions(run))
    assert kept == [[1], [1, 2], [2, 3], [2, 3, 4], [2, 4, 5], [2, 5, 6]]
    assert sorted(int(path.stem) for path in (run.folder / "checkpoints").glob("*.safetensors")) == kept[-1]


def test_what_cannot_be_read_may_be_a_milestone_and_stays(run: Run) -> None:
    run.save(1, lambda path: path.touch())
    (run.folder / "checkpoints/000000001.json").write_text("{")
    for position in (2, 3, 4):
        run.save(position, lambda path: path.touch())
    assert positions(run) == [1, 3, 4]


def test_damaged_checkpoints_move_aside_when_the_run_goes_back_behind_them(run: Run) -> None:
    for position in (20, 33, 35):
        run.save(position, lambda path: path.write_bytes(b"arrays"), milestone=position == 20)
    for position in (33, 35):
        (run.folder / f"checkpoints/{position:09d}.safetensors").write_bytes(b"damage")
    found = run.resume()
    assert found is not None and found.position == 20 and positions(run) == [20]
    assert run.aside is not None
    assert sorted(path.name for path in (run.aside / "checkpoints").iterdir()) == [
        f"{position:09d}.{ending}" for position in (33, 35) for ending in ("json", "safetensors")
    ]
    run.save(30, lambda path: path.write_bytes(b"arrays"))
    assert positions(run) == [20, 30]


def test_positions_grow(run: Run) -> None:
    run.save(0, lambda path: path.touch())
    with pytest.raises(ValueError, match="a checkpoint at 0 cannot follow one at 0"):
        run.save(0, lambda path: path.touch())


def test_a_save_that_fails_leaves_the_one_before(run: Run) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise FloatingPointError("loss is NaN")

    run.save(1, lambda path: path.touch())
    before = content(run.folder)
    with pytest.raises(FloatingPointError):
        run.save(2, fail)
    assert content(run.folder) == before


def test_old_checkpoints_stay_when_the_new_one_cannot_be_read_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for position in (1, 2):
        run.save(position, lambda path: path.write_bytes(b"arrays"))
    monkeypatch.setattr("comad.runs.checkpoints.write_json", lambda path, _: path.write_bytes(b"lost"))
    with pytest.raises(UserError, match=r"000000003.json was written but cannot be relied on: .* the checkpoints before it are kept"):
        run.save(3, lambda path: path.write_bytes(b"arrays"))
    found = run.resume()
    assert found is not None and found.position == 2 and list(run.skipped) == ["000000003.json"]
    assert (run.folder / "checkpoints/000000001.json").exists()


def test_a_journal_that_somebody_edits_meanwhile_stops_the_run(run: Run) -> None:
    run.append("scores", {"score": 1})
    run.save(1, lambda path: path.touch())
    (run.folder / "scores.jsonl").write_text('{"score": 9}\n')
    with pytest.raises(UserError, match=r"cannot be relied on: scores.jsonl is damaged"):
        run.save(2, lambda path: path.touch())
    assert (run.folder / "checkpoints/000000001.json").exists()


def test_records_that_came_without_checkpoints_are_not_cut(tmp_path: Path) -> None:
    train(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    before = content(tmp_path)
    with pytest.raises(UserError, match=r"keeps the records of a run without its checkpoints; .* --fresh"):
        train(tmp_path)
    assert content(tmp_path) == before
    assert train(tmp_path, fresh=True) == (0, {})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (identity(method={"name": "ft", "learning_rate": 0.001}), "run: method.learning_rate is 0.0005 there and 0.001 here; choose"),
        (identity(seed=1, tasks=["a", "c"]), 'run: seed is 0 there and 1 here, tasks.1 is "b" there and "c" here; choose'),
        (identity(tasks=["a"]), r'tasks is \["a", "b"\] there and \["a"\] here'),
        (identity(quality="medium"), 'quality is absent there and "medium" here; choose another folder or --fresh'),
        (identity(method=None), r"method is \{.*\} there and null here"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    with open_run(tmp_path, identity()):
        pass
    before = content(tmp_path)
    with pytest.raises(UserError, match=message), open_run(tmp_path, other):
        pass
    assert content(tmp_path) == before


def test_what_may_differ_is_recorded_for_every_sitting(tmp_path: Path) -> None:
    # Tuples become lists in the file and are the same setting.
    for version in ("1", "1", "2", "3"):
        with open_run(tmp_path, {**identity(tasks=("a", "b")), "libraries": {"jax": version}}):
            pass
    settings = read_settings(tmp_path)
    assert settings == {**identity(), "libraries": {"jax": "3"}, "earlier": [{"libraries": {"jax": "1"}}, {"libraries": {"jax": "2"}}]}


@pytest.mark.parametrize(
    "settings", [{}, {"identity": 3}, {"identity": {}, "earlier": []}, {"identity": {}, "seal": ""}, {"identity": {"rate": float("nan")}}]
)
def test_settings_that_cannot_tell_runs_apart_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"identity|not JSON compliant"), open_run(tmp_path, settings):
        pass
    assert content(tmp_path) == {}


def test_a_fresh_start_moves_the_run_aside_and_nothing_else(tmp_path: Path) -> None:
    train(tmp_path)
    before = content(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoints/mine.json").write_text("mine")
    with open_run(tmp_path, identity(), fresh=True) as run:
        assert run.resume() is None and run.skipped == {}
    kept = {"settings.json", "notes.txt", "checkpoints/mine.json", "logs.jsonl", "heads.jsonl", "scores.jsonl"}
    after = content(tmp_path)
    assert {name for name in after if not name.startswith("set-aside")} == kept
    assert read_run(tmp_path).settings == identity() and read_run(tmp_path).scores == []
    assert {name.removeprefix("set-aside/001/"): data for name, data in after.items() if name.startswith("set-aside")} == before
    assert find_runs(tmp_path) == [tmp_path], "what is aside is no run of its own"


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"thesis.tex": b"years"}, "is not empty and holds no run"),
        ({"scores.jsonl": b"{}\n", "checkpoints/000000001.json": b"{}"}, "is not empty and holds no run"),
        ({"settings.json": b'{"trainer": 1}', "thesis.tex": b"years"}, "does not describe a run"),
        ({"settings.json": b'{"identity": ', "thesis.tex": b"years"}, "cannot be read as JSON"),
    ],
)
def test_the_folder_of_somebody_else_is_not_touched(tmp_path: Path, files: dict[str, bytes], message: str, fresh: bool) -> None:
    put(tmp_path, files)
    with pytest.raises(UserError, match=message), open_run(tmp_path, SETTINGS, fresh=fresh):
        pass
    assert content(tmp_path) == files and not (tmp_path / "lock").exists()


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    train(tmp_path)
    before = content(tmp_path)
    strays = [".settings.json-ab12", ".scores.jsonl-cd34"]
    strays += [f"checkpoints/{name}" for name in (".000000016.json-x", ".000000016.safetensors", "..000000016.safetensors-y")]
    put(tmp_path, dict.fromkeys([*strays, "checkpoints/000000016.safetensors"], b"half"))
    put(tmp_path, {".gitignore": b"*", "checkpoints/.keep": b""})
    assert train(tmp_path) == (14, {})
    assert content(tmp_path) == {**before, ".gitignore": b"*", "checkpoints/.keep": b""}


HOLD = """
import pathlib, sys, counting
with counting.open_run(pathlib.Path(sys.argv[1]), counting.SETTINGS):
    print("open", flush=True)
    input()
"""


@pytest.mark.promise("two-processes")
def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"open\n"
        for fresh in (False, True):
            with pytest.raises(UserError, match=rf"in use by another process \(pid {holder.pid}\)"):
                train(tmp_path, fresh=fresh)
        holder.send_signal(signal.SIGKILL)
    assert train(tmp_path) == (0, {})


READ_ONLY = """
import os, pathlib, sys, counting
from comad.errors import UserError
os.chdir(sys.argv[1])
if os.getuid() == 0:  # whom no permission stops
    os.setuid(65534)
try:
    counting.train(pathlib.Path(sys.argv[2]))
except UserError as error:
    print(error)
"""


@pytest.mark.promise("read-only")
@pytest.mark.parametrize(("folder", "message"), [("new", "new cannot be read or written"), ("begun", "lock cannot be read or written")])
def test_a_read_only_folder_is_the_users_to_mend(tmp_path: Path, folder: str, message: str) -> None:
    train(tmp_path / "begun", until=3)
    places = [tmp_path / "begun", tmp_path]
    for path in places:
        path.chmod(0o555)
    (tmp_path / "begun/lock").chmod(0o444)
    command = [sys.executable, "-c", READ_ONLY, str(tmp_path), folder]
    answer = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True).stdout
    for path in places:
        path.chmod(0o755)
    assert message in answer and "(Permission denied)" in answer


def test_a_file_in_place_of_the_folder_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file/run"):
        with pytest.raises(UserError, match="Not a directory"):
            train(path)


def test_the_lock_names_its_holder(run: Run) -> None:
    assert (run.folder / "lock").read_text() == f"{os.getpid()}\n"
