"""What reports read of runs, without disturbing them."""

import json
import shutil
from pathlib import Path

import pytest
from counting import SETTINGS, put, train

from comad.errors import UserError
from comad.runs.folder import read_settings
from comad.runs.record import find_runs, read_run
from comad.runs.run import open_run


def test_reports_read_a_run_while_it_trains(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        run.resume()
        run.append("scores", {"task": "Übung", "score": 0.5})
        run.append("logs", {"text": "two\nlines\u2028"})
        record = read_run(tmp_path)
    assert record.settings == SETTINGS and record.path == tmp_path
    assert record.scores == [{"task": "Übung", "score": 0.5}] and record.logs == [{"text": "two\nlines\u2028"}] and record.heads == []


def unseal(folder: Path) -> None:
    """Makes a run one from before seals existed."""
    settings = read_settings(folder)
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "seal.json").unlink()


def test_a_torn_last_line_is_left_out_and_damage_elsewhere_is_named(tmp_path: Path) -> None:
    train(tmp_path)
    unseal(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")  # now nothing vouches for any line
    path = tmp_path / "scores.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(whole) - len(lines[-1]), len(whole)):
        path.write_bytes(whole[:cut])
        assert [line["step"] for line in read_run(tmp_path).scores] == list(range(1, 14))
    for damage, reason in ((b'{"step": \n', "damaged"), (b"\xff\n", "damaged"), (b"\n", "damaged"), (b"[1]\n", "not a record")):
        for place in (2, 13):
            path.write_bytes(b"".join([*lines[:place], damage, *lines[place + 1 :]]))
            with pytest.raises(UserError, match=rf"scores.jsonl, line {place + 1}: {reason}"):
                read_run(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=r"scores.jsonl cannot be read \(No such file"):
        read_run(tmp_path)


def test_runs_are_found_at_any_depth(tmp_path: Path) -> None:
    for name in ("b/seed1", "a", "b/seed0"):
        train(tmp_path / name, until=1)
    put(tmp_path, {"experts/settings.json": b"{}", "experts/curve.jsonl": b"", "c/scores.jsonl": b""})
    assert find_runs(tmp_path) == [tmp_path / "a", tmp_path / "b/seed0", tmp_path / "b/seed1"]
    assert find_runs(tmp_path / "a") == [tmp_path / "a"]
    with pytest.raises(UserError, match="there is no folder"):
        find_runs(tmp_path / "absent")


@pytest.mark.parametrize("tasks", [["CN-2"], [{"title": "CN-2"}], 3])
def test_settings_whose_tasks_are_none_are_named(tmp_path: Path, tasks: object) -> None:
    with open_run(tmp_path, {"identity": {"tasks": tasks}}) as run:
        run.resume()
        run.append("scores", {"heads": [0]})
    with pytest.raises(UserError, match="does not tell which head"):
        read_run(tmp_path).routed()
