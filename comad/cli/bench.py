"""`comad bench`: how fast this machine is."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from comad.bench import envs
from comad.cli.terminal import check_positive, progress, show_json, show_lines, show_table
from comad.errors import UserError


@dataclass(frozen=True)
class Bench:
    """Measure speed, beside the same worlds in plain Python."""

    subject: tyro.conf.Positional[Literal["envs"]]
    """What to measure: how many steps a second the worlds take."""
    num_envs: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N ...")] = envs.NUM_ENVS
    """Episodes played at once, one measurement each."""
    worlds: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = envs.WORLDS
    """Worlds to measure."""
    seconds: float = 1.0
    """How long each measurement takes, compiling not counted."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Measure, and print one row per measurement."""
        for count in self.num_envs:
            check_positive("--num-envs", count)
        if not (self.num_envs and self.worlds):
            raise UserError("nothing to measure: --num-envs and --worlds each need at least one value")
        if not 0 < self.seconds < float("inf"):
            raise UserError(f"--seconds must be more than 0, not {self.seconds}")
        rows = envs.measure(self.worlds, self.num_envs, self.seconds, track=show_progress)
        notes = envs.notes(self.worlds)
        if self.json:
            show_json({"rows": [dataclasses.asdict(row) for row in rows], "notes": notes})
            return
        columns = ("world", "implementation", "at once", "env steps", "seconds", "steps/second", "x Python", "first call, s")
        show_table("Steps of worlds with random legal actions", columns, [describe(row) for row in rows])
        show_lines(["The first call compiles and is not part of the measurement.", *notes])


def show_progress(cases: Sequence[envs.Case]) -> Iterable[envs.Case]:
    """The cases one by one, with a bar while they are measured."""
    with progress() as bar:
        yield from bar.track(cases, description="measuring")


def describe(row: envs.Row) -> tuple[str, ...]:
    """A row of the table."""
    return (
        row.world,
        row.implementation,
        str(row.num_envs),
        f"{row.env_steps:,}",
        f"{row.seconds:.2f}",
        f"{row.steps_per_second:,.0f}",
        "" if row.ratio is None else f"{row.ratio:.1f}",
        "" if row.first_call_seconds is None else f"{row.first_call_seconds:.1f}",
    )
