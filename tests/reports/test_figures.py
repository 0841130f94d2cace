"""Figures show what the runs say, and the same runs give the same files."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from PIL import Image
from placed import place

from comad.reports import figures
from comad.reports.results import gather


def test_bars_are_as_high_as_scores_and_curves_as_the_tasks_seen(tmp_path: Path) -> None:
    place(tmp_path, "comad", 0, [1.0, 0.8])
    place(tmp_path, "ft", 0, [0.0, 0.5])
    results, _ = gather([tmp_path])
    plan = dict(figures.plan(results))
    assert list(plan) == ["scores-lbf-expert-10", "curves-lbf-expert-10", "matrices-lbf-expert-10", "two-modes"]
    (axes,) = plan["scores-lbf-expert-10"]().axes
    assert [patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle)] == pytest.approx([90.0, 25.0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["comad", "ft"]
    assert any(np.allclose(np.asarray(line.get_ydata(), float), 99.26) for line in axes.lines)  # as published
    (axes,) = plan["curves-lbf-expert-10"]().axes
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_ydata(), float), [0.0, 100.0, 50.0, 90.0])
    # What was reached at the end of a task is drawn at its end, and not inside it.
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_xdata(), float), [0.0, 1.0, 1.0, 2.0])
    texts = [text.get_text() for text in plan["matrices-lbf-expert-10"]().axes[0].texts]
    assert texts == ["100", "0", "100", "80"]


def test_files_are_pictures_and_come_out_the_same_twice(tmp_path: Path) -> None:
    place(tmp_path, "comad", 0, [1.0, 0.8], settings={"noise": 0.1})
    place(tmp_path, "comad-quiet", 0, [0.5, 0.5], settings={"noise": 0.0})
    results, _ = gather([tmp_path])
    varied = next(entry for entry in figures.plan(results) if entry[0] == "variations-comad-lbf-expert-10")
    for folder in ("once", "twice"):
        figures.save(varied, tmp_path / folder)
    names = [f"{varied[0]}.png", f"{varied[0]}.svg"]
    assert sorted(path.name for path in (tmp_path / "once").iterdir()) == names
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()
    with Image.open(tmp_path / "once" / names[0]) as picture:
        assert picture.size > (300, 100)
