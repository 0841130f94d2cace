"""`comad experts curves`: how trainings of experts went, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from comad.cli.terminal import show_lines, show_table
from comad.errors import UserError
from comad.experts.training import Progress, read_curve
from comad.reports.figures import save
from comad.reports.trainings import Training, draw

EVERY_MINUTES = 5
"""Distance of the rows of the table."""


@dataclass(frozen=True)
class Curves:
    """Compare trainings of experts: what each had reached after every five minutes, and a picture."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER ...")]
    """Folders of trainings, such as out/experts/ant-reward-0-seed0."""
    out: Path | None = None
    """Draw the curves into this folder, as PNG and SVG."""

    def run(self) -> None:
        """Print the table, and draw if asked to."""
        found = [read_curve(folder) for folder in self.folders]
        for folder, curve in zip(self.folders, found, strict=True):
            if not curve:
                raise UserError(f"{folder}: no training has been evaluated here; 'comad experts train' makes such a folder")
        names = told_apart(self.folders)
        last = max(curve[-1].seconds for curve in found) / 60
        marks = [*range(EVERY_MINUTES, int(last) + 1, EVERY_MINUTES), None]
        rows = [("end" if mark is None else f"{mark} min", *(reached(curve, mark) for curve in found)) for mark in marks]
        show_table("Mean return of greedy play, and steps taken", ("after", *names), rows)
        if self.out is not None:
            trainings = [Training(name, *_lines(curve)) for name, curve in zip(names, found, strict=True)]
            save(("trainings", lambda: draw(trainings)), self.out)
            show_lines([f"drawn: {self.out / 'trainings.png'}, {self.out / 'trainings.svg'}"])


def reached(curve: Sequence[Progress], minutes: int | None) -> str:
    """The last evaluation within so many minutes, or of all; nothing of a training that had ended before."""
    known = [progress for progress in curve if minutes is None or progress.seconds <= 60 * minutes]
    over = minutes is not None and curve[-1].seconds <= 60 * (minutes - EVERY_MINUTES)
    return "" if over or not known else f"{known[-1].total:,.2f} ({known[-1].steps:,})"


def told_apart(folders: Sequence[Path]) -> list[str]:
    """What is different in the folders' names; the name, if that is nothing."""
    parts = [folder.resolve().parts for folder in folders]
    shared = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set(parts[0][:-1])
    names = ["/".join(part for part in path if part not in shared) for path in parts]
    return [name or path[-1] for name, path in zip(names, parts, strict=True)]


def _lines(curve: Sequence[Progress]) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    points = [(progress.steps, progress.seconds / 60, progress.total) for progress in curve]
    steps, minutes, returns = zip(*points, strict=True)
    return steps, minutes, returns
