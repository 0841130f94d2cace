"""`comad report`: what many runs say together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from comad.cli.terminal import show_lines, show_table
from comad.errors import UserError
from comad.files import write_bytes
from comad.reports import tables
from comad.reports.page import build
from comad.reports.results import Metric, gather
from comad.reports.tables import Row, main_table

CHANGES: tuple[Metric, ...] = ("FwT", "BwT")


@dataclass(frozen=True)
class Report:
    """Gather runs into tables of P, FwT and BwT over seeds, beside the published numbers."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUNS")]
    """Folders with runs, at any depth."""
    greedy: bool = False
    """Take the scores of greedy play instead of drawn skills and actions."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Write a page (index.html) and the table as Markdown, CSV and LaTeX into this folder."""

    def run(self) -> None:
        """Print the table and what could not be counted, and write the files."""
        results, flaws = gather(self.runs)
        if not results:
            first = f"; {flaws[0].why}" if flaws else ""
            raise UserError(f"no finished run in {', '.join(map(str, self.runs))}{first}")
        rows = main_table(results, "greedy" if self.greedy else "sampled")
        columns = ("stream", "data", "updates", "method", "seeds", "P", "95 %", "published", "FwT", "BwT")
        show_table(f"Scores over seeds, {'greedy' if self.greedy else 'drawn'} play", columns, [shown(row) for row in rows])
        show_lines([f"not counted: {flaw.why}" for flaw in flaws])
        if self.out:
            self.out.mkdir(parents=True, exist_ok=True)
            page, table = build(results, flaws), (tables.markdown(rows), tables.comma_separated(rows), tables.latex(rows))
            forms = dict(zip(("index.html", "table.md", "table.csv", "table.tex"), (page, *table), strict=True))
            for name, text in forms.items():
                write_bytes(self.out / name, text.encode())
            show_lines([f"wrote {', '.join(forms)} to {self.out}"])


def shown(row: Row) -> tuple[str, ...]:
    """A row of the printed table; the best P of a stream is starred."""
    reached, theirs = row.ours["P"], row.theirs.get("P")
    changes = (f"{row.ours[name].mean:+.1f}" if name in row.ours else "missing" for name in CHANGES)
    star = "*" if row.rank == 1 else ""
    cells = (row.stream, row.quality, str(row.updates), row.label, str(row.seeds), f"{reached.mean:.1f} ± {reached.std:.1f}{star}")
    return (*cells, f"{reached.low:.1f} to {reached.high:.1f}", "" if theirs is None else f"{theirs[0]:.1f}", *changes)
