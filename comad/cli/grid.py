"""`comad bench grid`: many runs at once, here or on a Ray cluster; started again, it goes on with what is not finished."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from comad import tracking
from comad.cli.commands import changed, read_method
from comad.cli.kept import budget_of, describe_uncompared, keep_own
from comad.cli.options import as_option
from comad.cli.tasks import find_stream
from comad.cli.terminal import duration, pause, show_lines, show_table
from comad.errors import OutOfRangeError, UserError
from comad.escaping import harmless
from comad.grid.cells import Cell, Grid, Variant, read_grid, told_apart, with_profile
from comad.grid.local import Ended, Event, Started, Workshop, share, this_program
from comad.grid.pace import Pace, seconds_left
from comad.grid.remote import Needs, run_on_ray
from comad.machine import available_cores
from comad.methods import find
from comad.metrics import percent
from comad.ranges import AtOnce, Count, Seed, Size, Units, Updates, ranged
from comad.runs.standing import Standing, look
from comad.training.lessons import locate

WAIT = 300
"""Seconds that a run waits for an older process that may still be saving it."""
REFRESH = 2.0
"""Seconds between two drawings of the table."""


@dataclass(frozen=True)
@ranged
class RunGrid:
    """Train methods on streams with several seeds, each run a process of its own; finished runs are kept, unfinished ones go on."""

    file: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="FILE")] = None
    """A grid in TOML; what is given on the command line goes before it."""
    profile: Literal["smoke", "lite", "paper"] | None = None
    """How long: smoke (minutes), lite (5,000 updates per task, 3 seeds; the default), paper (each stream's updates, 5 seeds)."""
    streams: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Streams to learn, worlds in an order of your own with commas between (cn-5,cn-3), or some tasks of a stream (cn:CN-5,CN-3)."""
    qualities: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Recordings to learn from; by default expert."""
    methods: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Methods; by default comad."""
    seeds: Annotated[tuple[Seed, ...] | None, tyro.conf.arg(metavar="N ...")] = None
    """Seeds; by default the profile's."""
    updates: Updates | None = None
    """Gradient updates per task; by default the profile's."""
    evaluations: Count | None = None
    """Evaluations per task, besides the one before its first update."""
    episodes: AtOnce | None = None
    """Episodes per task and evaluation."""
    batch: AtOnce | None = None
    """Episodes per update, on average."""
    out: Path = Path("runs")
    """Where runs lie; what they say goes into its folder 'logs'."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""
    at_once: Annotated[Size | None, tyro.conf.arg(metavar="N")] = None
    """Runs at once on this machine; by default as many as there are cores for."""
    cores: Annotated[Size, tyro.conf.arg(metavar="N")] = 1
    """Processor cores of every run; the same number gives the same bytes, here and by 'comad train'."""
    accept_other_machine: bool = False
    """Go on with runs that were begun on another processor, number of cores, jaxlib or XLA flags; the report then marks them."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """A Ray cluster that makes the runs instead, such as auto or ray://host:10001."""
    cpus: Annotated[Units | None, tyro.conf.arg(metavar="N")] = None
    """Processors that a run reserves on the cluster; by default as many as it has cores."""
    gpus: Units = 0.0
    """Accelerators that a run takes of the cluster."""
    track: tuple[tracking.Name, ...] = ()
    """Show the journals of runs in TensorBoard or Weights & Biases too."""

    def run(self) -> None:
        """Make what is missing while showing how far all runs are, then say what was reached and what went wrong."""
        board = self.complete()
        board.conclude()
        if board.failures:
            raise SystemExit(1)

    def complete(self) -> "Board":
        """Makes what is missing while showing how far all runs are; returns the board of all."""
        tracking.check(self.track)
        grid = self.grid()
        cells = list(grid.cells())
        board = Board(cells, self.out.resolve())
        there = keep_own(grid, cells, board.out, self.data, self.options)
        kept = {cell: there.get(cell, ()) for cell in cells if board.finished(cell)}
        waiting = [cell for cell in cells if cell not in kept and cell not in board.failures]
        if kept:
            said = f"{len(kept)} of {len(cells)} runs in {self.out} are finished and kept"
            show_lines([said, *describe_uncompared(kept.values())])
        if not waiting:
            return board
        with board.shown():
            for event in self.make(grid, waiting):
                board.note(event)
        return board

    def grid(self) -> Grid:
        """The grid that the file and the options describe."""
        profile, given = read_grid(self.file) if self.file else ("lite", {})
        names = ("streams", "qualities", "methods", "seeds", "updates", "evaluations", "episodes", "batch")
        given |= {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        grid = with_profile(self.profile or profile, given)
        for stream in grid.streams:
            budget_of(grid, find_stream(stream))
        for method in (*grid.methods, *(variant.method for variant in grid.variants)):
            find(method)
        for variant in grid.variants:
            self.options(variant)
        return grid

    def options(self, variant: Variant) -> list[str]:
        """A variant's settings as words, checked as the run itself would check them, but before any begins."""
        words = changed(variant.method, dict(variant.options))
        called = f"{self.file}: {variant.label}"
        try:
            read_method(variant.method, words)
        except OutOfRangeError as error:
            raise UserError(f"{called}: {as_option(error)}") from error
        except SystemExit as stop:  # such as a switch where a number belongs
            raise UserError(
                f"{called}: {variant.method} cannot be given {' '.join(words)}; 'comad train {variant.method} --help' tells"
            ) from stop
        return words

    def make(self, grid: Grid, cells: Sequence[Cell]) -> Iterator[Event]:
        """Make runs here or on the cluster."""
        out, data = self.out.resolve(), self.data.resolve() if self.data else None
        track = ["--track", *self.track] if self.track else []
        machine = ["--cores", str(self.cores), *(["--accept-other-machine"] if self.accept_other_machine else [])]

        def command(cell: Cell) -> list[str]:
            words = (*grid.arguments(cell, out, data), *self.options(cell.variant))
            return [*this_program(), *words, *machine, "--wait", str(WAIT), "--with-parent", *track]

        def log(cell: Cell) -> Path:
            return out / "logs" / f"{cell.folder(Path())}.log"

        if self.ray is not None:
            needs = Needs(float(self.cores) if self.cpus is None else self.cpus, self.gpus)
            return run_on_ray(cells, command, log, self.ray, needs, self.cores)
        cores = available_cores()
        if self.cores * (self.at_once or 1) > len(cores):
            raise UserError(
                f"{self.at_once or 1} runs at once on {self.cores} cores each do not fit on the {len(cores)} that this process may use; "
                "give a smaller --cores or --at-once"
            )
        for stream, quality in dict.fromkeys((cell.stream, cell.quality) for cell in cells):
            locate(find_stream(stream), quality, data)  # said once, instead of by every run
        return Workshop(command, log, share(cores, self.cores, self.at_once)).run(cells)


@dataclass
class Board:
    """What is known of all runs: a table that is drawn again and again, or lines where none can be drawn."""

    cells: Sequence[Cell]
    out: Path
    running: dict[Cell, Pace] = field(default_factory=dict)
    failures: dict[Cell, str] = field(default_factory=dict)
    seen: dict[Cell, Standing | None] = field(default_factory=dict)
    began: float = field(default_factory=lambda: time.monotonic())
    drawn: float = field(default_factory=lambda: time.monotonic())
    live: Live | None = None

    def finished(self, cell: Cell) -> bool:
        """Whether a run needs nothing more."""
        standing = self.see(cell)
        return standing is not None and standing.finished

    def see(self, cell: Cell) -> Standing | None:
        """How far a run is; one that is damaged is a failure with its reason, and the other runs go on."""
        try:
            self.seen[cell] = look(cell.folder(self.out))
        except UserError as error:
            self.seen[cell] = None
            self.failures[cell] = str(error)
        return self.seen[cell]

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw the table while runs are made."""
        console = Console(stderr=True)
        if not console.is_terminal:
            yield
            return
        with Live(self.table(), console=console, auto_refresh=False, transient=True) as self.live:
            yield

    def note(self, event: Event) -> None:
        """Take notice of what happened, and draw anew now and then."""
        if isinstance(event, Started):
            standing = self.see(event.cell)
            self.running[event.cell] = Pace(time.monotonic(), standing.done if standing else 0)
            self.say(f"{_name(event.cell)} {'begins' if event.attempt == 1 else 'is tried again'}")
        if isinstance(event, Ended):
            self.running.pop(event.cell, None)
            self.finished(event.cell)
            if event.outcome == "failed":
                self.failures[event.cell] = event.why
            self.say(f"{_name(event.cell)} {event.outcome}{f': {event.why}' if event.why else ''}{self.left()}")
        now = time.monotonic()
        if now - self.drawn >= (REFRESH if self.live else pause(now - self.began)):
            self.drawn = now
            for cell, pace in self.running.items():
                standing = self.see(cell)
                # A run goes on from its checkpoint, which may be behind what its log said when it was stopped.
                if standing and (standing.done < pace.before or (standing.done > pace.before and not pace.learns)):
                    self.running[cell] = Pace(self.drawn, standing.done, learns=True)
            if self.live:
                self.live.update(self.table(), refresh=True)
            else:
                names = told_apart(self.cells)
                going = ", ".join(f"{names[cell]} {self.describe(cell)}" for cell in self.running)
                self.say(f"{self.summary()}; {going}")

    def say(self, line: str) -> None:
        """A line above the table."""
        (self.live.console if self.live else Console(stderr=True)).print(harmless(line), markup=False, highlight=False, soft_wrap=True)

    def left(self) -> str:
        """How long all that is not finished will take, as far as can be told."""
        running = [(self.seen.get(cell), pace) for cell, pace in self.running.items()]
        standings = [self.seen.get(cell) for cell in self.cells]
        seconds = seconds_left(standings, running, time.monotonic())
        return f", about {duration(seconds)} left" if seconds else ""

    def summary(self) -> str:
        """How far all runs are together."""
        done = sum(1 for standing in self.seen.values() if standing and standing.finished)
        elapsed = duration(time.monotonic() - self.began)
        return f"{done} of {len(self.cells)} runs finished after {elapsed}{self.left()}"

    def table(self) -> Table:
        """Streams and methods down, seeds across."""
        table = Table(title=self.summary(), title_justify="left", title_style="bold")
        columns, rows = self.rows()
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*(Text(harmless(cell)) for cell in row))
        return table

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Names of columns, and a row per stream and method."""
        seeds = sorted({cell.seed for cell in self.cells})
        by_place = {(cell.row, cell.seed): cell for cell in self.cells}
        rows = [(*row, *(self.describe(by_place[row, seed]) for seed in seeds)) for row in dict.fromkeys(cell.row for cell in self.cells)]
        return ("stream", "method", *(f"seed {seed}" for seed in seeds)), rows

    def describe(self, cell: Cell) -> str:
        """How far one run is."""
        standing = self.seen.get(cell)
        if cell in self.failures:
            return "failed"
        if standing is None:
            return "begins" if cell in self.running else ""
        if standing.finished:
            return f"P {percent(standing.score):.1f}" if standing.score is not None else "finished"
        return f"{standing.done / standing.total:.0%}{'' if cell in self.running else ' waits'}"

    def conclude(self) -> None:
        """The final table, and what went wrong."""
        for cell in self.cells:
            self.finished(cell)
        show_table(f"Runs in {self.out}", *self.rows())
        show_lines([f"{_name(cell)} failed: {why}" for cell, why in self.failures.items()])


def _name(cell: Cell) -> str:
    return str(cell.folder(Path()))
