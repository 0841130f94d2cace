"""A grid of quick runs that makes what is missing; run as a program, it is what tests kill."""

import os
import sys
from pathlib import Path

from comad.grid.cells import Cell, Variant
from comad.grid.local import Workshop, share
from comad.runs.standing import look

MADE = Path(__file__).parents[1] / "grid" / "made.py"
CELLS = [Cell("s", "q", Variant("m", name="plain"), seed) for seed in range(4)]


def is_finished(cell: Cell, out: Path) -> bool:
    """Whether a run needs nothing more."""
    standing = look(cell.folder(out))
    return standing is not None and standing.finished


def main(out: Path) -> None:
    """Make all runs that are not finished, as 'comad bench grid' does."""

    def command(cell: Cell) -> list[str]:
        return [sys.executable, str(MADE), str(cell.folder(out)), cell.variant.name]

    cores = sorted(os.sched_getaffinity(0))
    places = share(cores, len(cores))
    waiting = [cell for cell in CELLS if not is_finished(cell, out)]
    for _ in Workshop(command, lambda cell: out / "logs" / f"{cell.seed}.log", places, pause=0.02).run(waiting):
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]))
