"""`comad train`: let a method learn a stream; started again, it goes on from where it was."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, Union

import tyro
from rich.progress import Progress

from comad import envs, tracking
from comad.cli.commands import departures
from comad.cli.growth import show_growth
from comad.cli.tasks import choose
from comad.cli.terminal import progress, show_lines, show_table
from comad.continual.method import settled
from comad.errors import UserError
from comad.escaping import harmless
from comad.grid.local import STARTED_BY
from comad.machine import use_cores
from comad.methods import METHODS, name_of, summary
from comad.metrics import backward_transfer, percent, performance
from comad.ranges import AtOnce, Count, Seconds, Seed, Size, Updates, ranged
from comad.reports.results import SCRATCH, UNDEFINED, from_scratch, gather, per_seed
from comad.reports.tables import PLAYED
from comad.runs.folder import read_settings
from comad.runs.record import MODES, Mode, RunRecord, read_run, usual_mode
from comad.runs.run import Run, open_run
from comad.tokens import check_alike
from comad.training.lessons import Lesson, prepare
from comad.training.loop import Budget, Evaluated, Event, Heads, Learned, Stopped, check_fit, train, window_of
from comad.training.provenance import identify
from comad.types import Stream

Settings = TypeVar("Settings")
PARENT = int(os.environ.get(STARTED_BY, os.getppid()))
"""Who started this process; whoever does it for a grid says so, because it may be gone before we look."""


@dataclass(frozen=True)
@ranged
class Training(Generic[Settings]):
    """Options that all methods share, and those of one."""

    method: Settings
    """Settings of the method."""
    stream: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """A stream, as 'comad list' shows them, or worlds with commas between: cn-5,cn-3."""
    tasks: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Tasks or worlds in an order of your own, instead of the stream's."""
    quality: str = "expert"
    """Which recordings to learn from: expert, medium, or the name under which yours are kept."""
    seed: Seed = 0
    """Decides everything that chance has a part in."""
    updates: Updates | None = None
    """Gradient updates per task; by default the stream's, as in the paper."""
    evaluations: Count | None = None
    """Evaluations per task, besides the one before its first update; by default 20, or 5 where actions are vectors."""
    episodes: AtOnce = 32
    """Episodes per task and evaluation."""
    batch: AtOnce | None = None
    """Episodes per update, on average, by default 32; where actions are vectors, steps, by default 128."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """The run's own folder; by default runs/STREAM-QUALITY/METHOD-seedN."""
    fresh: bool = False
    """Move the run that is in the folder to its folder set-aside and start over."""
    cores: Annotated[Size | None, tyro.conf.arg(metavar="N")] = None
    """Processor cores to use, by default all that this process may use; the same number gives the same bytes."""
    accept_other_machine: bool = False
    """Go on with a run that was begun on another processor, number of cores, jaxlib or XLA flags; the report then marks it."""
    wait: Seconds = 0.0
    """Seconds to wait if another process still works on the run."""
    with_parent: bool = False
    """Save and stop when the process that started this one has ended."""
    track: tuple[tracking.Name, ...] = ()
    """Show the journals in TensorBoard or Weights & Biases too, from files in the run's folder 'track'."""

    def run(self) -> None:
        """Train to the end, or until asked to stop, then show what was reached."""
        tracking.check(self.track)
        use_cores(self.cores)
        stream = choose(self.stream, self.tasks)
        updates = stream.updates if self.updates is None else self.updates
        specs = tuple(envs.find(task.env).spec for task in stream.tasks)
        check_alike(specs)
        budget = Budget.of(specs[0], updates, self.evaluations, self.episodes, self.batch)
        stream = replace(stream, updates=updates)
        method: Any = settled(self.method, specs[0])
        lessons = prepare(stream, self.quality, budget.batch, self.data, window_of(method, stream, specs))
        folder = self.out or Path("runs") / f"{stream.name}-{self.quality}" / f"{self.name}-seed{self.seed}"
        check_fit(method, stream, lessons, updates)
        identity = identify(self.name, method, stream, self.quality, lessons, self.seed, budget)
        with (
            open_run(folder, identity, self.fresh, self.wait, self.accept_other_machine) as run,
            tracking.following(folder, identity["identity"], self.track) as track,
        ):
            self.follow(run, method, stream, lessons, budget, track)
        show_result(read_run(folder))

    @property
    def name(self) -> str:
        """The method's registered name."""
        return name_of(self.method)

    def follow(self, run: Run, method: Any, stream: Stream, lessons: tuple[Lesson, ...], budget: Budget, track: Callable[[], None]) -> None:
        """Train while showing how it goes."""
        stopped = False
        with progress() as bar, wish_to_stop() as wished:
            display = Display(bar, stream, budget, usual_mode(read_settings(run.folder)))

            def stop() -> bool:
                if self.with_parent and os.getppid() != PARENT:
                    wished.append(signal.SIGHUP)
                return bool(wished)

            for number, event in enumerate(train(method, stream, lessons, self.seed, budget, run, stop)):
                if number == 0:
                    display.say(run.notices())
                display.show(event)
                track()
                stopped = isinstance(event, Stopped)
        if stopped:  # a wish that came with the very last update changed nothing
            show_lines(
                [f"stopped after update {display.done} of {display.total}; everything is saved in {run.folder}, the same command goes on"]
            )
            raise SystemExit(128 + wished[0])


def as_subcommand(name: str, method: Any) -> Any:
    """Returns the options of a method under its name; nested settings have the types of its own."""
    default: Any = Training(method=method)
    explained = tyro.conf.subcommand(name, default=default, description=summary(name))
    return Annotated[Training[type(method)], explained]  # type: ignore[misc]


if TYPE_CHECKING:
    Choice = Training[Any]
else:
    # The hidden None makes it a choice even if there is one method alone.
    Choice = Union[(*starmap(as_subcommand, METHODS.items()), Annotated[None, tyro.conf.Suppress])]


@dataclass(frozen=True)
class Train:
    """Let a method learn a stream from recorded data; started again, it goes on from where it was."""

    method: Choice

    def run(self) -> None:
        """Train."""
        self.method.run()


class Display:
    """Shows what happens in a training: the bar with rate and scores, and a line for each head that is opened or used again."""

    def __init__(self, bar: Progress, stream: Stream, budget: Budget, mode: Mode) -> None:
        self.bar, self.stream, self.mode = bar, stream, mode
        self.total, self.done = budget.updates * len(stream.tasks), 0
        self.bar_task = bar.add_task("compiling", total=self.total)
        self.scores, self.rate = "", ""
        self.clock: tuple[float, int] | None = None

    def say(self, lines: Sequence[str]) -> None:
        """Lines that stay above the bar."""
        for line in lines:
            self.bar.console.print(harmless(line), markup=False, highlight=False)

    def show(self, event: Event) -> None:
        """Take notice of an event."""
        name = self.stream.tasks[event.task].name
        if isinstance(event, Heads) and event.when == "begin" and event.heads:
            self.say([describe_choice(name, event.heads)])
        if isinstance(event, Evaluated):
            self.scores = "  ".join(f"{score:.2f}" for score in event.scores[self.mode]["score"])
            self.clock = None
        if isinstance(event, Learned):
            now = time.monotonic()
            if self.clock:
                self.rate = f"  {(event.updates - self.clock[1]) / (now - self.clock[0]):.0f} updates/s"
            self.clock, self.done = (now, event.updates), event.updates
        if not isinstance(event, Stopped):
            self.bar.update(self.bar_task, completed=self.done, description=f"{harmless(name)}{self.rate}  scores {self.scores}")


def describe_choice(task: str, heads: dict[str, Any]) -> str:
    """A sentence on which head a task got, and why."""
    active = heads["active"]
    others = ", ".join(f"{score:.2f}" for score in heads["scores"][: heads["before"]])
    why = f" (familiarity of the heads there were: {others})" if others else ""
    return f"{task}: {'re-uses' if active < heads['before'] else 'opens'} head {active}{why}"


@contextmanager
def wish_to_stop() -> Iterator[list[int]]:
    """Signals that ask to stop, as they come in; a second one stops at once."""
    wished: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if wished:
            raise KeyboardInterrupt
        wished.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wished
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_result(record: RunRecord) -> None:
    """Shows scores on all tasks after each one, P and BwT as reports have them, and the heads."""
    identity, usual = record.settings["identity"], usual_mode(record.settings)
    names = [task["name"] for task in identity["tasks"]]
    title = f"{identity['method']} on {identity['stream']}, {identity['quality']} data"
    rows = [
        (f"after {name}", *(f"{score:.1f}" for score in percent(scores[-1])))
        for name, scores in zip(names, record.score_array(), strict=True)
    ]
    show_table(f"{title}, {PLAYED[usual]}", ("score on", *names), rows)
    show_lines([f"{describe_reached(record, usual)}   {describe_forward_transfer(record, usual)}"])
    others = [mode for mode in MODES if mode != usual]
    show_lines([f"({PLAYED[other]}: {describe_reached(record, other)})" for other in others])
    show_growth(record)
    show_lines([f"everything is in {record.path}"])


def describe_reached(record: RunRecord, mode: Mode) -> str:
    """Returns P and BwT of a run in one way to play."""
    scores = record.score_array(mode)[None]
    reached = percent(performance(scores)).item()
    changed = percent(backward_transfer(scores)).item()
    return f"P {reached:.1f}   BwT {changed:+.1f}"


def describe_forward_transfer(record: RunRecord, mode: Mode) -> str:
    """Forward transfer against the runs from scratch beside this one, or what is missing for it."""
    try:
        results, _ = gather([record.path, *filter(Path.is_dir, record.path.parent.glob(f"{SCRATCH}-*"))], departures)
        ours = next(result for result in results if record.path in [one.path for one in result.records])
    except UserError as error:
        return f"(FwT cannot be told: {error})"
    forward, reference = per_seed(ours, results, mode).get("FwT"), from_scratch(ours, results)
    if forward is None or reference is None:
        wanted = f"(FwT needs a finished run of '{SCRATCH}' with the same stream, data and budget in {record.path.parent})"
        return "" if "FwT" in UNDEFINED.get(ours.method, ()) else wanted
    place = ours.seeds.index(record.settings["identity"]["seed"])
    return f"FwT {forward[place]:+.1f} (against {len(reference.seeds)} from scratch)"
