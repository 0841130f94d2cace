"""`comad demo`: the first command. A learner that keeps every task beside one that forgets."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from comad.cli.collect import Collect
from comad.cli.grid import RunGrid
from comad.cli.play import Play
from comad.cli.report import Report
from comad.cli.tasks import find_stream
from comad.cli.terminal import show_lines, show_table
from comad.datasets.store import Dataset
from comad.evaluation import score
from comad.metrics import percent
from comad.ranges import Count, Updates, ranged
from comad.reports.results import Result
from comad.reports.tables import main_table, spread
from comad.types import Metric, Stream, Task

QUALITY: str = "medium"
"""Of the data: many of its episodes fail, so that a method can be better than its data."""
SEED = 0
COMPARED: dict[str, str] = {
    "ft": "fine-tunes one network, with nothing against forgetting",
    "comad-plus": "keeps what it learned, adds or reuses heads",
}
"""The methods and what they do, in the order of the table."""
GIF_METHOD = "comad-plus"
MEASURED: dict[Metric, str] = {
    "return": "mean return, as a share of the full return",
    "success": "share of episodes won",
}


@dataclass(frozen=True)
@ranged
class Demo:
    """Train fine-tuning and COMAD-plus side by side: a table, a GIF and a report in two minutes."""

    stream: str = "lbf"
    """Tasks to learn one after another: a stream, or some of its tasks (lbf:BottomLeft,Right)."""
    updates: Updates = 250
    """Gradient updates per task."""
    episodes: Count | None = None
    """Recorded episodes per task; by default those of 'comad collect'."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""
    out: Path = Path("out")
    """Folder for the runs, the GIF and the report; finished runs in it are kept."""

    def run(self) -> None:
        """Record data, train both methods, show scores and an episode, write the report."""
        stream, runs, grid = find_stream(self.stream), self.out / "runs", self.grid()
        folders = {cell.variant.method: cell.folder(runs) for cell in grid.grid().cells()}
        show_lines([f"Recording {QUALITY} data of {stream.name}; what is there already is kept"])
        collect = Collect((self.stream,), None, (QUALITY,), self.episodes, data=self.data)
        datasets = collect.collect()
        methods = " and ".join(COMPARED)
        show_lines([f"{methods} learn one task after the other, {self.updates:,} updates each"])
        board = grid.complete()
        if board.failures:
            board.conclude()
            raise SystemExit(1)
        report = Report(tuple(folders.values()))
        results, flaws = report.gather()
        show_headline(stream, results, recorded_score(datasets, stream.metric))
        report.write(self.out / "report", results, flaws)
        first = stream.tasks[0]
        Play(str(folders[GIF_METHOD]), self.gif(first), task=first.name, won=True).run()
        page = self.out / "report" / "index.html"
        show_lines([f"Open {page}, then see what else there is with '{program()} list'"])

    def grid(self) -> RunGrid:
        """Returns the two runs: one seed, one evaluation at the end of each task."""
        return RunGrid(
            streams=(self.stream,),
            qualities=(QUALITY,),
            methods=tuple(COMPARED),
            seeds=(SEED,),
            updates=self.updates,
            evaluations=1,
            out=self.out / "runs",
            data=self.data,
        )

    def gif(self, task: Task) -> Path:
        """Returns where the GIF of a task goes."""
        return self.out / f"{task.env}-{GIF_METHOD}.gif"


def recorded_score(datasets: Sequence[Dataset], metric: Metric) -> float:
    """Returns P of the teams that recorded the data: their mean score over all tasks."""
    recorded = ((one.recorded, one.spec) for one in datasets)
    scores = [score(team.total, team.success, spec, metric) for team, spec in recorded]
    return percent(np.mean(scores)).item()


def show_headline(stream: Stream, results: Sequence[Result], recorded: float) -> None:
    """Prints one score for the data and for each method, and what the score is."""
    columns = ("team", "what it is", "P")
    show_table(f"{stream.name}, {QUALITY} data", columns, headline(results, recorded))
    count = len(stream.tasks)
    on = f"all {count} tasks after the last one was learned" if count > 1 else "the task"
    show_lines([f"P: the mean score on {on}, out of 100.", f"Score: {MEASURED[stream.metric]}."])


def headline(results: Sequence[Result], recorded: float) -> list[tuple[str, str, str]]:
    """Returns a row for the data and for each method: name, what it is, P as reports write it."""
    reached = {row.label: spread(row, "P") for row in main_table(results)}
    rows = [(method, said, reached[method]) for method, said in COMPARED.items()]
    return [("the data", "what the teams that recorded it reach", f"{recorded:.1f}"), *rows]


def program() -> str:
    """Returns what this program was called by, such as .venv/bin/comad."""
    return sys.argv[0] if Path(sys.argv[0]).name == "comad" else "comad"
