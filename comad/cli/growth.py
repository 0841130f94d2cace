"""`comad heads`: how the library of skills grew over a run, and how surely it would grow again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from comad.cli.standard_streams import complain
from comad.cli.terminal import progress, show_json, show_lines, show_table
from comad.errors import UserError
from comad.ranges import Count, ranged
from comad.runs.record import RunRecord, read_run
from comad.settings import settings

if TYPE_CHECKING:
    from comad.encounters import Encounter


@dataclass(frozen=True)
@ranged
class ShowHeads:
    """Show which head every task opened or used again, and why."""

    path: tyro.conf.Positional[Path]
    """The folder of a run."""
    held_out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Other recordings of its tasks ('comad collect STREAM --seed 1 --data FOLDER'): show which heads they would be given."""
    samples: Count = 20
    """Samples of each task's other recordings."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Print the growth of the library, or what becomes of other recordings."""
        record = read_run(self.path)
        if self.held_out is not None:
            self.try_on(self.held_out, record)
        elif self.json:
            show_json(record.heads)
        elif not record.growth():
            raise UserError(f"{self.path} has no heads to show: {record.settings['identity']['method']} has none, or has not begun")
        else:
            show_growth(record)
        if record.pending:
            complain(f"the last {record.pending} lines of {self.path} are not sealed yet; a finished run has no such lines")

    def try_on(self, folder: Path, record: RunRecord) -> None:
        """Print which heads other recordings would be given."""
        # Only here, because it loads JAX, which takes seconds, and growth is shown without.
        from comad.encounters import count, meet

        with progress() as bar:
            meeting = bar.add_task("meeting other recordings", total=count(record))
            met = []
            for encounter in meet(self.path, folder, self.samples):
                met.append(encounter)
                bar.advance(meeting)
        if self.json:
            show_json([settings(encounter) for encounter in met])
        else:
            show_encounters(met)


def show_encounters(met: Sequence["Encounter"]) -> None:
    """One row per library and task, and how often known tasks got their own head and new ones a new head."""
    rows = [
        (
            encounter.after,
            encounter.task,
            "new" if encounter.head is None else f"head {encounter.head}",
            "  ".join(f"head {head}: {count}" for head, count in enumerate(encounter.reused) if count),
            encounter.opened or "",
            "  ".join(f"{score:.2f}" for score in encounter.scores),
        )
        for encounter in met
    ]
    columns = ("library after", "task", "learned by", "would be re-used", "would open a head", "familiarity to the heads there were")
    show_table("Other recordings", columns, rows)
    lines = []
    for kind, known in (("known tasks that got their own head", True), ("new tasks that opened a head", False)):
        chosen = [encounter for encounter in met if (encounter.head is not None) == known]
        lines.append(f"{kind}: {sum(one.right for one in chosen)} of {sum(one.samples for one in chosen)}")
    show_lines(lines)


def show_growth(record: RunRecord) -> None:
    """One row per task: the head it got, what the heads there were thought of its data before, and of their own."""
    grown = record.growth()
    if not grown:
        return

    def shown(score: float | None) -> str:
        return "" if score is None else f"{score:.2f}"

    rows = [
        (
            entry.task,
            f"{'re-used' if entry.reused else 'opened'} {entry.head}",
            entry.used,
            "  ".join(shown(score) for score in entry.scores),
            shown(entry.own),
            shown(entry.noise),
        )
        for entry in grown
    ]
    columns = ("task", "head", "heads in all", "familiarity to the heads there were", "own data, after", "with noise")
    show_table("Growth of the library", columns, rows)
    if record.scores:
        routed = ", ".join(f"{name} by head {head}" for name, head in record.routed())
        show_lines([f"played in the end: {routed}"])
