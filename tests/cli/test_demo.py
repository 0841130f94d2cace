"""`comad demo`, which is `make run`: a table of three rows with the numbers of the report."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from placed import place
from recorded import record

from comad import envs, streams
from comad.cli import demo, main, parse
from comad.cli.report import Report
from comad.cli.terminal import LONGEST_PAUSE, duration, pause
from comad.cli.train import show_result
from comad.datasets.store import Dataset
from comad.reports.results import gather
from comad.runs.record import read_run
from comad.runs.standing import look
from comad.types import Metric

PROJECT = Path(__file__).parents[2]
ROWS = {"the data": "60.2", "ft": "12.5", "comad-plus": "28.8"}
KEPT = "2 of 2 runs in out/runs are finished and kept\n"


def place_both(folder: Path) -> dict[str, Path]:
    """Finished runs of both methods.

    P of COMAD-plus, (57.5 + 0) / 2, is exactly 28.75, but 100 * 0.2875 is less on a computer.
    """
    ft = place(folder, "ft", 0, [0.25, 0.0])
    better = place(folder, "comad-plus", 0, [0.575, 0.0], greedily=0.5, method="comad-plus")
    return {"ft": ft, "comad-plus": better}


def table_in(text: str) -> dict[str, str]:
    """The first and the last column of a printed table."""
    lines = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    return {cells[0].strip(): cells[-1].strip() for cells in lines}


def in_markdown(report: Path) -> dict[str, str]:
    """P by method in the table that a report writes."""
    text = (report / "table.md").read_text()
    return dict(re.findall(r"^\|.* \| (\S+) \| 1 \| \*+([\d.]+)\*+ \|", text, re.M))


def on_page(report: Path) -> dict[str, str]:
    """P by method as the page holds it."""
    page = (report / "index.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    results = json.loads(found[1])["results"]
    reached = {one["label"]: one["modes"][one["usual"]]["metrics"]["P"]["mean"] for one in results}
    return {label: f"{mean:.1f}" for label, mean in reached.items()}


def test_the_table_has_a_row_for_the_data_and_for_each_method(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place_both(tmp_path)
    results, flaws = gather([tmp_path])
    assert flaws == []
    assert {name: reached for name, _, reached in demo.headline(results, 60.16)} == ROWS
    demo.show_headline(streams.find("lbf"), results, recorded=60.16)
    out = capsys.readouterr().out
    assert table_in(out) == ROWS and list(table_in(out)) == list(ROWS)
    assert "P: the mean score on all 5 tasks after the last one was learned, out of 100.\n" in out
    assert "Score: mean return, as a share of the full return.\n" in out


@pytest.mark.parametrize(("metric", "score"), [("return", 52.5), ("success", 55.0)])
def test_the_score_of_the_data_is_that_of_the_teams_that_recorded_it(
    metric: Metric,
    score: float,
    tmp_path: Path,
) -> None:
    recorded = record(tmp_path / "data", envs.make("lbf-5x5-2p-2f"), episodes=4)
    assert recorded.spec.full_return == 1.0

    def dataset(mean_return: float, success_rate: float) -> Dataset:
        """The same, as if a team of these means had recorded it."""
        told = dataclasses.replace(recorded.recorded, total=mean_return, success=success_rate)
        return dataclasses.replace(recorded, recorded=told)

    both = [dataset(0.25, 0.5), dataset(0.8, 0.6)]
    assert demo.recorded_score(both, metric) == pytest.approx(score)
    mean_return = float(recorded.arrays["reward"].sum()) / 4
    assert demo.recorded_score([recorded], "return") == pytest.approx(100 * mean_return)


def test_all_that_tells_a_score_tells_the_same_number(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs, report = place_both(tmp_path / "runs"), tmp_path / "report"
    results, flaws = gather([tmp_path / "runs"])
    Report(runs=(tmp_path,)).write(report, results, flaws)
    expected = {name: ROWS[name] for name in runs}
    assert in_markdown(report) == on_page(report) == expected
    assert main(["report", str(tmp_path / "runs")]) == 0
    lines = [line.split("│") for line in capsys.readouterr().out.splitlines()]
    printed = {cells[1].strip(): cells[3].strip(" *") for cells in lines if len(cells) > 4}
    assert printed == expected
    for method, greedy in {"ft": "12.5", "comad-plus": "14.4"}.items():
        show_result(read_run(runs[method]))
        out = capsys.readouterr().out
        # One table and one headline; what the other way to play reaches stands in brackets.
        assert re.findall(r"^P (\S+)", out, re.M) == [expected[method]]
        assert out.count("score on") == 1 and f"(greedy play: P {greedy}" in out


def test_nothing_is_wider_than_a_terminal_of_80_columns(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place_both(tmp_path)
    results, _ = gather([tmp_path])
    for columns in (None, "80"):  # as it comes out of a pipe, and as on a narrow terminal
        if columns:
            monkeypatch.setenv("COLUMNS", columns)
        for stream in ("lbf", "cn", "marines"):
            demo.show_headline(streams.find(stream), results, recorded=100.0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 50 and max(map(len, lines)) <= 80


def test_something_is_said_every_five_seconds_in_the_first_two_minutes() -> None:
    assert max(pause(float(seconds)) for seconds in range(150)) <= 5
    assert pause(3600.0) == LONGEST_PAUSE
    seconds = (0.4, 99.0, 100.0, 119.6, 599.0, 600.0, 11880.0)
    said = ["0 s", "99 s", "1:40 min", "2:00 min", "9:59 min", "10 min", "198 min"]
    assert [duration(one) for one in seconds] == said


def test_make_run_says_what_the_program_understands() -> None:
    recipe = re.search(r"^run: install\n((?:\t.+\n)+)", (PROJECT / "Makefile").read_text(), re.M)
    assert recipe
    (words,) = [shlex.split(line) for line in recipe[1].splitlines()]
    verb = demo.Demo()
    assert words[0] == "$(BIN)/comad" and parse(words[1:]) == verb
    gif = verb.gif(streams.find(verb.stream).tasks[0])
    readme = (PROJECT / "README.md").read_text()
    for made in (verb.out / "report" / "index.html", gif, verb.out / "runs"):
        assert f"`{made}`" in readme


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--stream lfb", "there is no stream named 'lfb'; did you mean lbf?"),
        ("--updates 0", "--updates must be a whole number x with 1 <= x <= 10000000, not 0"),
        ("--episodes 0", "--episodes must be a whole number x with 1 <= x <= 1000000, not 0"),
    ],
)
def test_wrong_input_gets_one_line_and_leaves_nothing(
    words: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1 and list(tmp_path.iterdir()) == []


def demonstrate(folder: Path) -> tuple[str, str]:
    """What the shortest demo says, on two tasks: its output, and its progress."""
    words = ["demo", "--stream", "lbf:BottomLeft,Bottom", "--updates", "2", "--episodes", "60"]
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-m", "comad", *words],
        cwd=folder,
        env={**environment, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.mark.slow
def test_the_first_command_does_all_it_says_and_then_shows_it_again(tmp_path: Path) -> None:
    (out, progress), again = demonstrate(tmp_path), demonstrate(tmp_path)
    assert "runs finished after" in progress
    assert again == (out.replace(" each\n", f" each\n{KEPT}"), "")

    report = tmp_path / "out" / "report"
    folder = tmp_path / "out" / "runs" / "lbf:BottomLeft,Bottom-medium"
    assert sorted(path.name for path in folder.iterdir()) == ["comad-plus-seed0", "ft-seed0"]
    told = table_in(out)
    assert list(told) == list(ROWS)
    reached = {name: told[name] for name in ("ft", "comad-plus")}
    assert in_markdown(report) == reached == on_page(report)
    for name, score in reached.items():
        standing = look(folder / f"{name}-seed0")
        assert standing and standing.finished and standing.score is not None
        assert 100 * standing.score == pytest.approx(float(score), abs=0.05001)

    assert (tmp_path / "out" / "lbf-bottomleft-comad-plus.gif").stat().st_size > 1000
    won = r"return 1\.00, success\nchosen: seed \d+, the first won episode of \d+ played\nOpen out/"
    assert re.search(won, out)
    # Nothing but this program speaks, nothing twice, and in lines that fit.
    spoken = [*out.splitlines(), *progress.splitlines()]
    assert max(map(len, spoken)) <= 80 and len(out.splitlines()) == len(set(out.splitlines()))
    assert not [line for line in spoken if re.match(r"[EWI]\d{4} |WARNING|.*xla", line, re.I)]
