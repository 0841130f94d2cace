"""`comad data mix`: one dataset out of several qualities, for every task of a stream."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from comad import envs
from comad.cli.tasks import choose
from comad.cli.terminal import progress, show_lines
from comad.datasets import library
from comad.datasets.mix import mix
from comad.datasets.store import open_dataset, refuse_damaged
from comad.errors import UserError
from comad.ranges import Count, ranged


@dataclass(frozen=True)
@ranged
class Mix:
    """Shuffle recordings of several qualities into one dataset per task, half of the episodes from each of two."""

    stream: tyro.conf.Positional[str | None] = None
    """A stream; 'comad list' shows them."""
    tasks: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...", aliases=("--task",))] = None
    """Only these tasks, or worlds of your own."""
    of: Annotated[tuple[str, ...], tyro.conf.arg(metavar="QUALITY ...")] = ("expert", "medium")
    """The qualities to mix, in equal parts."""
    quality: str = "mixed"
    """What to call the mixture."""
    episodes: Count = 2000
    """Episodes per dataset."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""

    def run(self) -> None:
        """Mix task by task, then say what came out."""
        if len(set(self.of)) < 2 or self.quality in self.of:
            raise UserError(
                f"--of {' '.join(self.of)} --quality {self.quality}: give two qualities or more, and another name for the mixture"
            )
        worlds = dict.fromkeys(envs.make(task.env).spec.env for task in choose(self.stream, self.tasks).tasks)
        lines = []
        with progress() as bar:
            bar_task = bar.add_task("mixing", total=len(worlds))
            for world in worlds:
                parts = [refuse_damaged(open_dataset(library.find(f"{world}/{quality}", self.data))) for quality in self.of]
                made = mix(library.place(world, self.quality, self.data), parts, self.quality, self.episodes)
                lines.append(
                    f"{made.path}: {made.recorded.episodes} episodes, return {made.recorded.total:.3f}, success {made.recorded.success:.3f}"
                )
                bar.advance(bar_task)
        show_lines(lines)
