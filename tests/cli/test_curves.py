"""Trainings side by side: what each had reached when, and a picture of it."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from comad.cli import main
from comad.cli.curves import reached, told_apart
from comad.experts.training import Progress
from comad.runs.run import open_run


def curve(*points: tuple[int, float, float]) -> list[Progress]:
    return [Progress(steps, 0.0, total, 0.0, 1.0, 60 * minutes, "") for steps, minutes, total in points]


QUICK = curve((1000, 2.0, 7.5), (2000, 4.0, 20.25))
SLOW = curve((500, 6.0, -3.0), (900, 11.0, 4.0))


def test_what_was_reached_is_the_last_evaluation_within_the_time() -> None:
    assert [reached(QUICK, minutes) for minutes in (5, 10, None)] == ["20.25 (2,000)", "", "20.25 (2,000)"]
    assert [reached(SLOW, minutes) for minutes in (5, 10, 15, None)] == ["", "-3.00 (500)", "4.00 (900)", "4.00 (900)"]


def test_trainings_are_named_by_what_is_different() -> None:
    assert told_apart([Path("out/sac/ant-seed0"), Path("out/hatd3/ant-seed0")]) == ["sac", "hatd3"]
    assert told_apart([Path("out/sac/ant-seed0"), Path("out/sac/ant-seed1")]) == ["ant-seed0", "ant-seed1"]
    assert told_apart([Path("out/sac/ant-seed0")]) == ["ant-seed0"]


def test_they_are_shown_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, found in (("quick", QUICK), ("slow", SLOW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scores.jsonl").write_text("".join(json.dumps(dataclasses.asdict(one)) + "\n" for one in found))
    folders = [str(tmp_path / name) for name in ("quick", "slow")]
    assert main(["experts", "curves", *folders, "--out", str(tmp_path / "drawn")]) == 0
    said = capsys.readouterr().out
    assert "20.25 (2,000)" in said and "4.00 (900)" in said
    assert (tmp_path / "drawn" / "trainings.png").stat().st_size > 5000
    assert "<!-- quick -->" in (tmp_path / "drawn" / "trainings.svg").read_text()


@pytest.mark.promise("foreign-records")
def test_a_curve_that_was_changed_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_run(tmp_path / "quick", {"identity": {"env": "cn-2"}}) as run:
        run.resume()
        run.append("scores", dataclasses.asdict(QUICK[0]))
        run.save(1, lambda path: path.write_bytes(b"state"))
    assert main(["experts", "curves", str(tmp_path / "quick")]) == 0 and "7.50" in capsys.readouterr().out
    scores = tmp_path / "quick" / "scores.jsonl"
    scores.write_text(scores.read_text().replace("7.5", "9.5"))
    assert main(["experts", "curves", str(tmp_path / "quick")]) == 2
    shown = capsys.readouterr()
    assert "scores.jsonl is damaged" in shown.err and "9.50" not in shown.out


def test_a_curve_of_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scores.jsonl").write_text(json.dumps({**dataclasses.asdict(QUICK[0]), "seconds": "x"}) + "\n")
    # In a process of its own, where nothing but the reader itself checks types.
    ended = subprocess.run([sys.executable, "-m", "comad", "experts", "curves", str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "is not the curve of a training" in ended.stderr and "Traceback" not in ended.stderr
