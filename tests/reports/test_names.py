"""Names of strangers in everything that a report writes."""

import csv
import dataclasses
import io
import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image
from placed import place
from reliability import tried
from test_escaping import EVIL, TEXTS, rendered, typeset

from comad.cli import main
from comad.escaping import harmless
from comad.reports import figures, tables
from comad.reports.overall import Overall
from comad.reports.results import gather
from comad.reports.tables import Row, main_table

COLUMNS = 7
"""Of the table in LaTeX."""


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Row:
    folder = tmp_path_factory.mktemp("runs")
    place(folder, "comad", 0, [0.5, 1.0])
    return main_table(gather([folder])[0])[0]


@pytest.mark.promise("hostile-files")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.tuples(TEXTS, TEXTS, TEXTS))
def test_tables_hold_names_as_text_in_every_place(names: tuple[str, str, str], row: Row) -> None:
    stream, quality, label = names
    shown = [harmless(name) for name in names]
    odd = dataclasses.replace(row, stream=stream, quality=quality, label=label)

    (line,) = [line for line in tables.latex([odd, odd]).splitlines() if line.endswith(r" \\")][1:2]
    cells = line.removesuffix(r" \\").split(" & ")
    assert len(cells) == COLUMNS and [typeset(cells[place]) for place in (0, 1, 3)] == shown

    line = tables.markdown([odd]).splitlines()[-1]
    cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
    assert [rendered(cells[place]) for place in (0, 1, 3)] == shown

    line = tables.overall_markdown([Overall(10, label, ((stream, quality),), ((stream, quality),), 0, None, None, {})]).splitlines()[-1]
    cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
    assert rendered(cells[1]) == shown[2] and rendered(cells[3]) == f"{shown[0]} {shown[1]}"

    header, *lines = csv.reader(io.StringIO(tables.comma_separated([odd, row])))
    assert [len(line) for line in lines] == [len(header)] * 2
    assert not any(line[place].lstrip().startswith(("=", "+", "-", "@", "\t", "\r")) for line in lines for place in (0, 1, 3))
    assert [float(line[header.index("BwT_mean")]) for line in lines] == [-50.0] * 2 and lines[0][4:] == lines[1][4:]
    tried(4)


FIGURE_NAMES = (
    r"$\frac{",
    "$x$ $",
    "_hidden",
    "a" * 5000,
    "任务",
    "x\ny",
    "a/../../b",
    "\x00",
    *EVIL[:3],
)


@pytest.mark.parametrize("name", FIGURE_NAMES)
def test_figures_show_names_as_they_are_and_are_written_into_their_folder(name: str, tmp_path: Path) -> None:
    place(
        tmp_path / "runs",
        "comad",
        0,
        [1.0, 0.8],
        stream=name,
        tasks=[{"name": name}, {"name": "second"}],
    )
    results = [dataclasses.replace(result, label=name, method=name) for result in gather([tmp_path])[0]]
    for plan in figures.plan(results):
        if not plan[0].startswith("two-modes"):
            figures.save(plan, tmp_path / "out")
            tried()
    written = sorted((tmp_path / "out").iterdir())
    assert [path.suffix for path in written] == [".png", ".svg"] * 3
    for path in written:
        if path.suffix == ".svg":
            ElementTree.parse(path)
        else:
            with Image.open(path) as picture:
                assert picture.width * picture.height < 2 * figures.MOST_PIXELS
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out", "runs"]


def test_a_picture_of_many_tasks_stays_one_that_can_be_opened(tmp_path: Path) -> None:
    figures.save(("large", lambda: Figure(figsize=(300, 200))), tmp_path)
    with Image.open(tmp_path / "large.png") as picture:
        assert picture.width * picture.height < 1.01 * figures.MOST_PIXELS


@pytest.mark.promise("hostile-files")
def test_a_report_on_names_of_every_kind_is_written_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = os.fsdecode(b'=HYPERLINK("x")\\input~\x1b[2J\xff') + "\u202e"
    path = place(tmp_path / evil, "comad", 0, [1.0, 1.0], stream="\\input /etc/passwd", quality="<img src=x>")
    path.rename(path.with_name(f"comad-{evil}-seed0"))
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert not set(said.out + said.err) & set("\x1b\udcff\u202e")
    texts = {name: (tmp_path / "out" / name).read_text() for name in ("table.md", "table.csv", "table.tex", "seeds.csv", "index.html")}
    assert r"\input" not in texts["table.tex"] and not re.search(r"(?<!\\)<img", texts["table.md"] + texts["index.html"])
    for name, text in texts.items():
        assert not set(text) & set("\x1b\udcff\u202e"), name
    (run,) = list(csv.DictReader(io.StringIO(texts["seeds.csv"])))
    assert run["run"].startswith(str(tmp_path)) and run["method"].startswith("comad-=HYPERLINK")


def test_a_server_tells_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    from comad.reports.serve import Watched

    folder = tmp_path / os.fsdecode(b"\xff")
    place(folder, "comad", 0, [1.0, 1.0])
    (folder / "lbf-expert" / "comad-seed0" / "scores.jsonl").write_text("nothing\n")
    data, _ = Watched([folder], lambda identity, name: "", lambda identity: ()).data()
    assert r"/\xff/" in json.loads(data)["flaws"][0]
