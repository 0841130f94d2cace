"""The main table in the forms people take away: Markdown, CSV, LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from comad.metrics import Summary
from comad.reports.results import METRICS, Metric, Mode, Result, published, summaries


@dataclass(frozen=True)
class Row:
    """One method on one stream."""

    stream: str
    quality: str
    updates: int
    label: str
    seeds: int
    ours: dict[Metric, Summary]
    theirs: dict[Metric, tuple[float, float]]
    """As published: mean and deviation."""
    rank: int
    """By P among the methods of its stream, quality and budget: 1 is the best."""

    def difference(self, metric: Metric) -> float | None:
        """Ours minus theirs, where both are known."""
        return self.ours[metric].mean - self.theirs[metric][0] if metric in self.ours and metric in self.theirs else None


def main_table(results: Sequence[Result], mode: Mode = "sampled") -> list[Row]:
    """One row per result, stream by stream, the best P first."""
    found = [(result, summaries(result, results, mode)) for result in results]

    def group(result: Result) -> tuple[str, str, int]:
        return result.stream, result.quality, result.updates

    found.sort(key=lambda pair: (group(pair[0]), -pair[1]["P"].mean, pair[0].label))
    rows: list[Row] = []
    for result, ours in found:
        before = [row for row in rows if (row.stream, row.quality, row.updates) == group(result)]
        # Equal numbers share a rank.
        tied = next((row.rank for row in before if row.ours["P"].mean == ours["P"].mean), len(before) + 1)
        theirs = {name: published()[key] for name in METRICS if (key := (result.stream, result.quality, result.label, name)) in published()}
        rows.append(Row(*group(result), result.label, len(result.seeds), ours, theirs, tied))
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """A table for people: mean ± deviation, the interval, the published mean in brackets; best P bold, second best in italics."""
    lines = ["| stream | data | updates | method | seeds | P | 95 % | published | FwT | BwT |", "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        reached = row.ours["P"]
        mark = {1: "**", 2: "*"}.get(row.rank, "")
        cells = (
            row.stream,
            row.quality,
            f"{row.updates:,}",
            row.label,
            str(row.seeds),
            f"{mark}{reached.mean:.1f} ± {reached.std:.1f}{mark}",
        )
        interval = f"{reached.low:.1f} to {reached.high:.1f}"
        lines.append(f"| {' | '.join((*cells, interval, _published(row, 'P'), _both(row, 'FwT'), _both(row, 'BwT')))} |")
    return "\n".join(lines) + "\n"


def comma_separated(rows: Sequence[Row]) -> str:
    """All numbers, for programs."""
    sizes = ("mean", "std", "low", "high", "published_mean", "published_std", "difference")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = ("stream", "quality", "updates", "method", "seeds", "rank")
    writer.writerow([*columns, *(f"{metric}_{size}" for metric in METRICS for size in sizes)])
    for row in rows:
        numbers: list[float | None] = []
        for metric in METRICS:
            ours, theirs = row.ours.get(metric), row.theirs.get(metric, (None, None))
            numbers += [ours.mean, ours.std, ours.low, ours.high] if ours else [None] * 4
            numbers += [*theirs, row.difference(metric)]
        shown = ("" if number is None or number != number else f"{number:.4f}" for number in numbers)
        writer.writerow([row.stream, row.quality, row.updates, row.label, row.seeds, row.rank, *shown])
    return out.getvalue()


def latex(rows: Sequence[Row]) -> str:
    """A booktabs table for a paper."""
    lines = [r"\begin{tabular}{llrlrrr}", r"\toprule", r"stream & data & updates & method & $P$ & FwT & BwT \\"]
    place = None
    for row in rows:
        if place != (place := (row.stream, row.quality, row.updates)):
            lines.append(r"\midrule")
        cells = [_latex_number(row, metric) for metric in METRICS]
        names = [text.replace("_", r"\_") for text in (row.stream, row.quality)]
        lines.append(f"{names[0]} & {names[1]} & {row.updates} & {row.label.replace('_', chr(92) + '_')} & {' & '.join(cells)} " + r"\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_number(row: Row, metric: Metric) -> str:
    ours = row.ours.get(metric)
    if ours is None:
        return "--"
    number = rf"{ours.mean:.1f} \pm {ours.std:.1f}"
    if metric == "P" and row.rank in (1, 2):
        number = (r"\mathbf{" if row.rank == 1 else r"\underline{") + number + "}"
    return f"${number}$"


def _published(row: Row, metric: Metric) -> str:
    difference = row.difference(metric)
    return "" if difference is None else f"{row.theirs[metric][0]:.1f} ({difference:+.1f})"


def _both(row: Row, metric: Metric) -> str:
    ours = row.ours.get(metric)
    shown = "missing" if ours is None else f"{ours.mean:+.1f} ± {ours.std:.1f}"
    return f"{shown} [{row.theirs[metric][0]:+.1f}]" if metric in row.theirs else shown
