"""`comad report`: what many runs say together."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

import tyro

from comad.cli.commands import command, departures
from comad.cli.terminal import followed, show_lines, show_table
from comad.errors import UserError
from comad.files import write_bytes
from comad.reports import tables
from comad.reports.overall import overall
from comad.reports.page import build, collect
from comad.reports.results import Flaw, Metric, Result, gather, unequal
from comad.reports.tables import Row, main_table
from comad.runs.record import Play

CHANGES: tuple[Metric, ...] = ("FwT", "BwT")


@dataclass(frozen=True)
class Report:
    """Gather runs into tables of P, FwT and BwT over seeds, beside the published numbers."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUNS")]
    """Folders with runs, at any depth."""
    play: Play = "usual"
    """Whose scores to take: of drawn skills and actions, of the likeliest, or usually of drawn ones but where actions are vectors."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Write a page (index.html), the table as Markdown, CSV and LaTeX, and figures as PNG and SVG into this folder."""
    figures: bool = True
    """Whether to draw the figures."""

    def run(self) -> None:
        """Print the table and what could not be counted, and write the files."""
        results, flaws = self.gather()
        rows = main_table(results, self.play)
        columns = ("method", "seeds", "P", "95 %", "late P", "published", "FwT", "BwT")
        # A table each, for no terminal is wide enough to say in every row where it was.
        for (stream, quality, updates), some in groupby(rows, lambda row: (row.stream, row.quality, row.updates)):
            show_table(f"{stream}, {quality} data, {updates:,} updates per task", columns, [shown(row) for row in some])
        show_lines(
            [
                f"Scores over seeds, {tables.PLAYED[self.play]}; * the best P.",
                tables.LATE,
                *([tables.PUBLISHED] if any(row.theirs for row in rows) else []),
            ]
        )
        show_lines([f"compare with care: {said}" for said in unequal(results)])
        show_lines([f"{'noticed' if flaw.counted else 'not counted'}: {flaw.why}" for flaw in flaws])
        if self.out:
            names = self.write(self.out, results, flaws)
            drawn = self.draw(results) if self.figures else 0
            figures = f" and {drawn} figures" if drawn else ""
            show_lines([f"wrote {', '.join(names)}{figures} to {self.out}"])

    def gather(self) -> tuple[list[Result], list[Flaw]]:
        """Returns the results of all finished runs, at least one, and what is wrong with others."""
        if not self.runs:
            raise UserError("no folder to report on; give some that hold runs, such as runs")
        results, flaws = gather(self.runs, departures)
        if not results:
            first = f"; {flaws[0].why}" if flaws else ""
            raise UserError(f"no finished run in {', '.join(map(str, self.runs))}{first}")
        return results, flaws

    def write(self, out: Path, results: Sequence[Result], flaws: Sequence[Flaw]) -> list[str]:
        """Writes the page and the table in all its forms; returns the names of the files."""
        rows, total = main_table(results, self.play), overall(results, self.play)
        forms = {
            "index.html": build(collect(results, flaws, command, self.play)),
            "table.md": tables.markdown(rows, self.play) + "\n" + tables.overall_markdown(total),
            "table.csv": tables.comma_separated(rows),
            "table.tex": tables.latex(rows, self.play),
            "seeds.csv": tables.by_seed(results, self.play),
        }
        for name, text in forms.items():
            write_bytes(out / name, text.encode())
        return list(forms)

    def draw(self, results: Sequence[Result]) -> int:
        """Draw all figures; how many they are."""
        from comad.reports import figures  # Matplotlib takes a second to load, which no other command should wait for

        assert self.out is not None
        planned = figures.plan(results, self.play)
        for figure in followed(planned, "drawing"):
            figures.save(figure, self.out / "figures")
        return len(planned)


def shown(row: Row) -> tuple[str, ...]:
    """A row of the printed table; the best P of a stream is starred."""
    reached, theirs = row.ours["P"], row.theirs.get("P")
    changes = (f"{row.ours[name].mean:+.1f}" if name in row.ours else "-" if name in row.undefined else "missing" for name in CHANGES)
    star = "*" if row.rank == 1 else ""
    return (
        row.label,
        str(row.seeds),
        f"{tables.spread(row, 'P')}{star}",
        f"{reached.low:.1f} to {reached.high:.1f}" if row.seeds > 1 else "",
        f"{row.late:.1f}",
        "" if theirs is None else f"{theirs[0]:.1f}",
        *changes,
    )
