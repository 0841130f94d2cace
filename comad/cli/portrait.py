"""`comad portrait`: what runs look like from the inside, for pages that draw it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from comad.cli.teams import is_run
from comad.cli.terminal import progress, show_lines
from comad.errors import UserError
from comad.portrait import find_sitter, portray, write
from comad.runs.folder import PORTRAIT
from comad.runs.record import find_runs


@dataclass(frozen=True)
class Portrait:
    """Write replays, skills and re-use of finished runs into their folders."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")]
    """Folders of runs, or folders with runs at any depth."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""

    def run(self) -> None:
        """Draw run after run, then tell what was written and what was left out."""
        runs = find(self.runs)
        lines, refused = [], []
        with progress() as bar:
            drawing = bar.add_task("drawing", total=len(runs))
            for number, run in enumerate(runs):
                bar.update(drawing, description=f"drawing {run}")
                try:
                    sitter = find_sitter(run, self.data)
                    size = write(run, portray(sitter, partial(bar.advance, drawing, 1 / sitter.parts)))
                    lines.append(f"wrote {run / PORTRAIT}: {len(sitter.ends)} tasks, {size / 1000:.0f} kB")
                except UserError as error:
                    refused.append(str(error))
                bar.update(drawing, completed=number + 1)
        if not lines:
            raise UserError(refused[0])
        show_lines([*lines, *(f"left out: {why}" for why in refused)])


def find(folders: tuple[Path, ...]) -> list[Path]:
    """The runs that were named, and those in folders that were, each once."""
    found: list[Path] = []
    for folder in folders:
        runs = [folder] if is_run(str(folder)) else find_runs(folder)
        if not runs:
            raise UserError(f"there is no run in {folder}; 'comad train' makes one")
        found += runs
    if not found:
        raise UserError("whose portrait? give the folder of a run, or a folder with runs")
    return list(dict.fromkeys(found))
