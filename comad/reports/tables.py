"""The main table in the forms people take away: Markdown, CSV, LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from comad import escaping
from comad.metrics import Summary, backward_transfer, late_performance, percent
from comad.reports.overall import Overall
from comad.reports.results import METRICS, UNDEFINED, Metric, Place, Result, per_seed, published, summaries
from comad.runs.record import Mode, Play


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
    undefined: tuple[Metric, ...]
    """Metrics that say nothing of this method."""
    backward_over_all: float | None
    """BwT with the last task's zero counted, as the paper's text has it; its tables need the other."""
    rank: int | None
    """By P among the methods of its stream, quality and budget: 1 is the best. None for one alone, and for variants: they are no rivals."""
    mode: Mode
    """How the teams were played."""
    late: float
    """P over the last quarter of the evaluations, over seeds."""

    def difference(self, metric: Metric) -> float | None:
        """Ours minus theirs, where both are known."""
        return self.ours[metric].mean - self.theirs[metric][0] if metric in self.ours and metric in self.theirs else None


def main_table(results: Sequence[Result], play: Play = "usual") -> list[Row]:
    """One row per result, stream by stream, the best P first."""
    found = [(result, summaries(result, results, play)) for result in results]

    def group(result: Result) -> tuple[str, str, int]:
        return result.stream, result.quality, result.updates

    found.sort(key=lambda pair: (group(pair[0]), -pair[1]["P"].mean, pair[0].label))
    rivals: dict[tuple[str, str, int], list[float]] = {}
    for result, ours in found:
        if result.label == result.method:
            rivals.setdefault(group(result), []).append(ours["P"].mean)
    rows: list[Row] = []
    for result, ours in found:
        reached = rivals.get(group(result), [])
        # The first place of equal numbers, so that they share a rank.
        rank = reached.index(ours["P"].mean) + 1 if result.label == result.method and len(reached) > 1 else None
        theirs = {name: published()[key] for name in METRICS if (key := (result.stream, result.quality, result.label, name)) in published()}
        undefined = UNDEFINED.get(result.method, ())
        changed = percent(backward_transfer(result.scores(play), "all"))
        over_all = float(changed.mean()) if "BwT" in ours else None
        late = float(percent(late_performance(result.scores(play))).mean())
        rows.append(Row(*group(result), result.label, len(result.seeds), ours, theirs, undefined, over_all, rank, result.mode(play), late))
    return rows


PLAYED: dict[Play, str] = {
    "usual": "drawn play, greedy where actions are vectors",
    "sampled": "drawn play",
    "greedy": "greedy play",
}
LATE = "Late P: the mean of the last quarter of the evaluations, which share their starts among methods, so that one may mislead."
PUBLISHED = "Published runs had 20,000 updates per task, those of the Ant 100,000."


def markdown(rows: Sequence[Row], play: Play = "usual") -> str:
    """A table for people: mean ± deviation, the interval, the published mean in brackets; best P bold, second best in italics."""
    lines = [f"{PLAYED[play].capitalize()}. {LATE} {PUBLISHED}", ""]
    lines += [
        "| stream | data | updates | method | seeds | P | 95 % | late P | published | FwT | BwT |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        reached = row.ours["P"]
        mark = {1: "**", 2: "*"}.get(row.rank or 0, "")
        stream, quality, label = map(escaping.markdown, (row.stream, row.quality, row.label))
        cells = (stream, quality, f"{row.updates:,}", label, str(row.seeds), f"{mark}{spread(row, 'P')}{mark}")
        interval = f"{reached.low:.1f} to {reached.high:.1f}" if row.seeds > 1 else ""
        shown = (*cells, interval, f"{row.late:.1f}", _published(row, "P"), _both(row, "FwT"), _both(row, "BwT"))
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def overall_markdown(rows: Sequence[Overall]) -> str:
    """Methods over all streams; empty where nothing can be compared."""
    if not rows:
        return ""
    lines = ["| updates | method | seeds | streams | mean P | interquartile mean |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.mean is None or row.middle is None:
            shown = (f"missing on {_places(row.missing) or 'a common seed'}", "")
        else:
            ends = [f" ({one.low:.1f} to {one.high:.1f})" if row.seeds > 1 else "" for one in (row.mean, row.middle)]
            shown = f"{row.mean.value:.1f}{ends[0]}", f"{row.middle.value:.1f}{ends[1]}"
        cells = (f"{row.updates:,}", escaping.markdown(row.label), str(row.seeds), _places(row.places), *shown)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _places(places: Sequence[Place]) -> str:
    return escaping.markdown(", ".join(" ".join(place) for place in places))


def spread(row: Row, metric: Metric) -> str:
    """Mean ± deviation, or the one number that there is."""
    ours = row.ours[metric]
    sign = "" if metric == "P" else "+"
    return f"{ours.mean:{sign}.1f} ± {ours.std:.1f}" if row.seeds > 1 else f"{ours.mean:{sign}.1f}"


def comma_separated(rows: Sequence[Row]) -> str:
    """All numbers, for programs."""
    sizes = ("mean", "std", "low", "high", "published_mean", "published_std", "difference")
    columns = ("stream", "quality", "updates", "method", "play", "seeds", "rank")
    lines = [[*columns, *(f"{metric}_{size}" for metric in METRICS for size in sizes), "BwT_over_all_tasks", "P_late"]]
    for row in rows:
        numbers: list[float | None] = []
        for metric in METRICS:
            ours, theirs = row.ours.get(metric), row.theirs.get(metric, (None, None))
            # One seed has no deviation, and says nothing of others.
            spread = [ours.std, ours.low, ours.high] if ours and row.seeds > 1 else [None] * 3
            numbers += [ours.mean if ours else None, *spread, *theirs, row.difference(metric)]
        shown = (_cell(number) for number in (*numbers, row.backward_over_all, row.late))
        stream, quality, label = map(escaping.csv_text, (row.stream, row.quality, row.label))
        lines.append([stream, quality, str(row.updates), label, row.mode, str(row.seeds), str(row.rank or ""), *shown])
    return _written(lines)


def by_seed(results: Sequence[Result], play: Play = "usual") -> str:
    """One line per run: its metrics, its heads, and where it lies."""
    lines = [["stream", "quality", "updates", "method", "play", "seed", *METRICS, "P_late", "heads", "run"]]
    for result in results:
        found = per_seed(result, results, play)
        late = percent(late_performance(result.scores(play)))
        for place, (seed, record) in enumerate(zip(result.seeds, result.records, strict=True)):
            values = (_cell(found[name][place]) if name in found else "" for name in METRICS)
            heads = str(max((grown.used for grown in record.growth()), default=""))
            stream, quality, label, path = map(escaping.csv_text, (result.stream, result.quality, result.label, str(record.path)))
            about = (stream, quality, str(result.updates), label, result.mode(play))
            lines.append([*about, str(seed), *values, _cell(late[place]), heads, path])
    return _written(lines)


def _written(lines: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _cell(number: float | None) -> str:
    return "" if number is None or number != number else f"{number:.4f}"


def latex(rows: Sequence[Row], play: Play = "usual") -> str:
    """A booktabs table for a paper."""
    lines = [
        f"% {PLAYED[play]}",
        r"\begin{tabular}{llrlrrr}",
        r"\toprule",
        r"stream & data & updates & method & $P$ & FwT & BwT \\",
    ]
    place = None
    for row in rows:
        if place != (place := (row.stream, row.quality, row.updates)):
            lines.append(r"\midrule")
        cells = [_latex_number(row, metric) for metric in METRICS]
        stream, quality, label = map(escaping.latex, (row.stream, row.quality, row.label))
        lines.append(f"{stream} & {quality} & {row.updates} & {label} & {' & '.join(cells)} " + r"\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_number(row: Row, metric: Metric) -> str:
    ours = row.ours.get(metric)
    if ours is None:
        return "--"
    number = rf"{ours.mean:.1f} \pm {ours.std:.1f}" if row.seeds > 1 else f"{ours.mean:.1f}"
    if metric == "P" and row.rank in (1, 2):
        number = (r"\mathbf{" if row.rank == 1 else r"\underline{") + number + "}"
    return f"${number}$"


def _published(row: Row, metric: Metric) -> str:
    difference = row.difference(metric)
    return "" if difference is None else f"{row.theirs[metric][0]:.1f} ({difference:+.1f})"


def _both(row: Row, metric: Metric) -> str:
    shown = spread(row, metric) if metric in row.ours else "-" if metric in row.undefined else "missing"
    return f"{shown} [{row.theirs[metric][0]:+.1f}]" if metric in row.theirs else shown
