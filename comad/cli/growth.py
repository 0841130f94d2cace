"""`comad heads`: how the library of skills grew over a run."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from comad.cli.terminal import show_json, show_lines, show_table
from comad.errors import UserError
from comad.runs.record import RunRecord, read_run


@dataclass(frozen=True)
class ShowHeads:
    """Show which head every task opened or used again, and why."""

    path: tyro.conf.Positional[Path]
    """The folder of a run."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Print the growth of the library."""
        record = read_run(self.path)
        if self.json:
            show_json(record.heads)
        elif not record.growth():
            raise UserError(f"{self.path} has no heads to show: {record.settings['identity']['method']} has none, or has not begun")
        else:
            show_growth(record)


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
