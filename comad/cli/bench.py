"""`comad bench`: how fast this machine is."""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from comad.bench import envs, scaling, step
from comad.cli.grid import RunGrid
from comad.cli.terminal import followed, progress, show_json, show_lines, show_table
from comad.errors import UserError
from comad.ranges import Count, CountOrZero, Duration, Size, SizeOrZero, ranged
from comad.settings import settings


@dataclass(frozen=True)
@ranged
class Envs:
    """How many steps a second the worlds take, beside the same worlds in plain Python."""

    num_envs: Annotated[tuple[Count, ...], tyro.conf.arg(metavar="N ...")] = envs.NUM_ENVS
    """Episodes played at once, one measurement each."""
    worlds: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = envs.WORLDS
    """Worlds to measure."""
    seconds: Duration = 1.0
    """How long each measurement takes, compiling not counted."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Measure, and print one row per measurement."""
        if not (self.num_envs and self.worlds):
            raise UserError("nothing to measure: --num-envs and --worlds each need at least one value")
        rows = envs.measure(self.worlds, self.num_envs, self.seconds, track=show_progress)
        notes = envs.notes(self.worlds)
        if self.json:
            show_json({"rows": [settings(row) for row in rows], "notes": notes})
            return
        columns = ("world", "implementation", "at once", "env steps", "seconds", "steps/second", "x Python", "first call, s")
        show_table("Steps of worlds with random legal actions", columns, [describe(row) for row in rows])
        show_lines(["The first call compiles and is not part of the measurement.", *notes])


@dataclass(frozen=True)
@ranged
class Step:
    """What a gradient update costs, beside the matrix peak of the same cores and an eager PyTorch version (extra 'bench')."""

    methods: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ("comad",)
    """Methods to measure."""
    shapes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = step.SHAPES
    """Shapes to measure."""
    cores: Annotated[tuple[Size, ...], tyro.conf.arg(metavar="N ...")] = (1, 2)
    """On how many cores; one measurement each, in a process of its own."""
    seconds: Duration = 5.0
    """How long each measurement takes at least, compiling not counted."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Measure, and print one row per shape, stage and number of cores."""
        if not (self.methods and self.shapes and self.cores):
            raise UserError("nothing to measure: --methods, --shapes and --cores each need at least one value")
        found = self.measure_here() if len(self.cores) == 1 else self.measure_apart()
        if self.json:
            show_json(found)
            return
        columns: tuple[str, ...] = (
            "method",
            "shape",
            "cores",
            "stage",
            "ms",
            "GFLOP",
            "GFLOP/s",
            "peak",
            "share",
            "compile s",
            "cached s",
        )
        if any(row["eager_milliseconds"] is not None for row in found["rows"]):
            columns += ("eager ms", "x eager")
        # Without the columns of a peer that is not installed names have room in one line.
        show_table("One gradient update", columns, [describe_step(row)[: len(columns)] for row in found["rows"]])
        for took in found["evaluations"]:
            show_lines([f"evaluation of CN, 4 x 32 episodes, once compiled, on {took['cores']} cores: {took['one_mode_seconds']:.2f} s"])

    def measure_here(self) -> dict[str, Any]:
        """Measure in this process, kept on its first cores."""
        step.check_names(self.shapes, self.methods, self.data)  # a wrong name changes nothing
        step.pin(self.cores[0])
        rows = []
        with progress() as bar:
            measuring = bar.add_task("measuring", total=2 * len(self.shapes) * len(self.methods) + 1)
            for row in step.measure(self.shapes, self.cores[0], self.seconds, self.data, self.methods):
                rows.append(settings(row))
                bar.update(
                    measuring, advance=1, description=f"measuring on {self.cores[0]}: {row.method} {row.shape} {row.milliseconds:.0f} ms"
                )
            evaluation = {"cores": self.cores[0], **step.measure_evaluation(self.data)}
        return {"rows": rows, "evaluations": [evaluation]}

    def measure_apart(self) -> dict[str, Any]:
        """Measure in one process per number of cores, since JAX counts them once."""
        found: dict[str, Any] = {"rows": [], "evaluations": []}
        data = () if self.data is None else ("--data", str(self.data))
        for cores in self.cores:
            options = (
                "--methods",
                *self.methods,
                "--shapes",
                *self.shapes,
                "--cores",
                str(cores),
                "--seconds",
                str(self.seconds),
                *data,
                "--json",
            )
            done = subprocess.run(
                [sys.executable, "-m", "comad", "bench", "step", *options], stdout=subprocess.PIPE, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(done.returncode)  # it has said why
            part = json.loads(done.stdout)
            found = {name: found[name] + part[name] for name in found}
        return found


@dataclass(frozen=True)
@ranged
class Tasks:
    """What an update and an evaluation of COMAD cost on streams of ever more tasks, each with a head of its own."""

    sizes: Annotated[tuple[Size, ...], tyro.conf.arg(metavar="N ...")] = scaling.SIZES
    """Tasks of the stream, one measurement each."""
    guides: Annotated[tuple[SizeOrZero, ...], tyro.conf.arg(metavar="N ...")] = (0, 4)
    """Heads that stage 2 hears at most, one measurement each; 0 hears all."""
    worlds: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = scaling.WORLDS
    """Worlds of the tasks, again and again in other orders; there must be expert data of them."""
    seconds: Duration = 2.0
    """How long each measurement takes at least, compiling not counted."""
    episodes: CountOrZero = 8
    """Episodes per task and evaluation; 0 leaves evaluations out."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw it, as a PNG or SVG file."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Measure, and print one row per number of tasks and of heads heard."""
        if not (self.sizes and self.guides and self.worlds):
            raise UserError("nothing to measure: --sizes, --guides and --worlds each need at least one value")
        rows: list[scaling.Row] = []
        with progress() as bar:
            measuring = bar.add_task("measuring", total=len(self.sizes) * len(self.guides))
            for row in scaling.measure(self.sizes, self.guides, self.worlds, self.seconds, self.episodes, self.data):
                rows.append(row)
                bar.update(measuring, advance=1, description=f"measuring {row.tasks} tasks")
        if self.picture:
            scaling.draw(rows, self.picture)
        if self.json:
            show_json([settings(row) for row in rows])
            return
        columns = ("tasks", "heads heard", "stage 1, ms", "stage 2, ms", "GFLOP 1", "GFLOP 2", "choosing, ms", "evaluation, s", "MB")
        show_table("Cost against the number of tasks", columns, [describe_tasks(row) for row in rows])


@dataclass(frozen=True)
class Bench:
    """Compare methods by grids of runs, and measure speed on this machine."""

    verb: (
        Annotated[RunGrid, tyro.conf.subcommand("grid")]
        | Annotated[Envs, tyro.conf.subcommand("envs")]
        | Annotated[Step, tyro.conf.subcommand("step")]
        | Annotated[Tasks, tyro.conf.subcommand("tasks")]
    )

    def run(self) -> None:
        """Measure and print."""
        self.verb.run()


def describe_step(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    eager = row["eager_milliseconds"]
    return (
        row["method"],
        row["shape"] + ("" if row["recorded"] else " (made up)"),
        str(row["cores"]),
        str(row["stage"]),
        f"{row['milliseconds']:.1f}",
        f"{row['gigaflop']:.2f}",
        f"{row['gigaflop_per_second']:.1f}",
        f"{row['peak']:.0f}",
        f"{row['share_of_peak']:.0%}",
        f"{row['compile_seconds']:.1f}",
        f"{row['cached_seconds']:.1f}",
        "" if eager is None else f"{eager:.0f}",
        "" if eager is None else f"{eager / row['milliseconds']:.1f}",
    )


def describe_tasks(row: scaling.Row) -> tuple[str, ...]:
    """A row of the table."""
    numbers = (row.stage_one, row.stage_two, row.gigaflop_one, row.gigaflop_two, row.choosing, row.evaluation, row.megabytes)
    return str(row.tasks), str(row.guides or "all"), *("" if number != number else f"{number:.2f}" for number in numbers)


def show_progress(cases: Sequence[envs.Case]) -> Iterable[envs.Case]:
    """The cases one by one, with a bar while they are measured."""
    return followed(cases, "measuring")


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
