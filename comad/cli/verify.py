"""`comad verify`: whether the records of runs are as they were written."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tyro

from comad.cli.terminal import followed, show_lines, show_table
from comad.errors import UserError
from comad.runs.record import find_runs
from comad.runs.verify import seal_legacy, verify

DAMAGED = 1
"""The exit code if any run is damaged."""


@dataclass(frozen=True)
class Verify:
    """Check runs byte by byte: settings, scores, heads and checkpoints against their seals and hashes."""

    path: tyro.conf.Positional[Path]
    """The folder of a run, or of many."""
    seal: bool = False
    """Seal runs that were made before seals existed, as they are now."""

    def run(self) -> None:
        """Print what is wrong with each run, and how many are sound; the exit code is 1 if any is damaged."""
        runs = find_runs(self.path)
        if not runs:
            raise UserError(f"{self.path} holds no run; name the folder of one, or a folder of runs")
        verdicts = [seal_legacy(found) if self.seal else found for found in map(verify, followed(runs, "verifying"))]
        noted = [verdict for verdict in verdicts if verdict.notes or len(verdicts) == 1]
        if noted:
            show_table("Runs", ("run", "state", "notes"), [(one.path, one.state, "; ".join(one.notes)) for one in noted])
        counts = Counter(verdict.state for verdict in verdicts)
        show_lines([f"{len(verdicts)} runs: {', '.join(f'{count} {state}' for state, count in counts.items())}"])
        if counts["damaged"]:
            raise SystemExit(DAMAGED)
