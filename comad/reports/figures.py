"""Pictures for papers and slides, as PNG and SVG: scores, curves, matrices, variations, the toy. Drawn without a screen."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from comad import escaping, theory
from comad.metrics import performance_over_time
from comad.reports.results import Result, place_of, published, summaries
from comad.reports.variations import families
from comad.runs.record import Play

COLORS = (
    *("#0b5fa5", "#d1495b", "#2e8b57", "#e08e0b", "#7b4fa3", "#3aa6b9"),
    *("#8c6d46", "#c2559d", "#6b7280", "#5a7d2a", "#a04000", "#34495e"),
)
"""The page's, in its order, so that a method looks the same everywhere."""
LOOK: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "legend.frameon": False,
    "svg.hashsalt": "comad",
    # Names are text: neither formulas nor TeX, which would run.
    "text.parse_math": False,
    "text.usetex": False,
}
DPI, MOST_PIXELS = 160, 5e7
Plan = tuple[str, Callable[[], Figure]]
"""A figure's name, and how to draw it."""


def plan(results: Sequence[Result], play: Play = "usual") -> list[Plan]:
    """All figures that the results allow."""
    groups: dict[tuple[str, str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((*place_of(result), result.updates), []).append(result)
    colors = {label: COLORS[place % len(COLORS)] for place, label in enumerate(_labels(results))}
    found: list[Plan] = []
    for (stream, quality, updates), here in groups.items():
        name = f"{stream}-{quality}-{updates}"
        if plain := [result for result in here if result.label == result.method]:
            found.append((f"scores-{name}", partial(scores, plain, results, colors, play)))
        found.append((f"curves-{name}", partial(curves, here, colors, play)))
        found.append((f"matrices-{name}", partial(matrices, here, play)))
    for family in families(results):
        base = family.base
        bars = [("as it is", base), *((one.described(), one.result) for one in family.variations)]
        name = f"variations-{base.label}-{base.stream}-{base.quality}-{base.updates}"
        found.append((name, partial(horizontal, bars, results, colors, play)))
    return [*found, ("two-modes", toy)]


def save(figure: Plan, folder: Path) -> None:
    """Draw a figure into a folder, as PNG and as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    name, draw = figure
    with mpl.rc_context(LOOK), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a name in letters that the font lacks, or too long for its place
        drawn = draw()
        # However many tasks and methods there are, the picture stays one that can be opened.
        dpi = min(DPI, np.sqrt(MOST_PIXELS / np.prod(drawn.get_size_inches())))
        for kind in ("png", "svg"):
            # Without the day and the program, so that the same runs give the same file.
            stamp: dict[str, Any] = {"Software": None} if kind == "png" else {"Date": None}
            drawn.savefig(folder / f"{escaping.file_name(name)}.{kind}", dpi=dpi, bbox_inches="tight", metadata=stamp)


def _labels(results: Sequence[Result]) -> list[str]:
    """Methods as they are first, then their variants."""
    ordered = sorted(results, key=lambda result: result.label != result.method)
    return list(dict.fromkeys(result.label for result in ordered))


def scores(here: Sequence[Result], results: Sequence[Result], colors: dict[str, str], play: Play) -> Figure:
    """P of every method on one stream with its interval, and the published mean as a line across the bar."""
    found = sorted(((summaries(result, results, play)["P"], result) for result in here), key=lambda pair: -pair[0].mean)
    figure = Figure(figsize=(1.2 + 0.65 * len(found), 3.0))
    axes = figure.subplots()
    for place, (reached, result) in enumerate(found):
        axes.bar(place, reached.mean, color=colors[result.label], width=0.7)
        if len(result.seeds) > 1:
            axes.plot([place, place], [reached.low, reached.high], color="black", linewidth=1)
        theirs = published().get((result.stream, result.quality, result.label, "P"))
        if theirs:
            axes.plot([place - 0.42, place + 0.42], [theirs[0]] * 2, color="black", linestyle=":", linewidth=1.2)
        axes.annotate(f"{reached.mean:.1f}", (place, max(reached.mean, reached.high) + 1), ha="center", fontsize=8)
    axes.set_xticks(
        range(len(found)), [escaping.label(result.label) for _, result in found], rotation=40, ha="right", rotation_mode="anchor"
    )
    axes.set_ylim(0, 110)
    axes.set_ylabel("P")
    axes.set_title(f"{_title(here[0])}; dotted: published", fontsize=9)
    return figure


def curves(here: Sequence[Result], colors: dict[str, str], play: Play) -> Figure:
    """The mean score over the tasks seen so far, with the deviation over seeds, and where tasks begin."""
    figure = Figure(figsize=(7.0, 2.8))
    axes = figure.subplots()
    tasks = here[0].tasks
    for result in here:
        reached = performance_over_time(result.scores(play), "seen")
        values = 100 * reached.reshape(len(result.seeds), -1)
        # One task is one unit, whatever the number of evaluations in it; the last one of a task is at the place of the next one's first.
        at = (np.arange(len(tasks))[:, None] + np.linspace(0, 1, reached.shape[-1])).ravel()
        mean, std = values.mean(0), values.std(0)
        look: dict[str, Any] = {"linewidth": 1.4} if result.label == result.method else {"linewidth": 0.8, "linestyle": (0, (4, 2))}
        axes.plot(at, mean, color=colors[result.label], label=escaping.label(result.label), **look)
        axes.fill_between(at, np.clip(mean - std, 0, 100), np.clip(mean + std, 0, 100), color=colors[result.label], alpha=0.15, linewidth=0)
    for border in range(1, len(tasks)):
        axes.axvline(border, color="0.8", linestyle="--", linewidth=0.8, zorder=0)
    axes.set_xticks(np.arange(len(tasks)) + 0.5, [escaping.label(task) for task in tasks])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(0, len(tasks))
    axes.set_ylim(0, 103)
    axes.set_ylabel("score, tasks seen so far")
    axes.set_title(_title(here[0]), fontsize=9)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    return figure


def matrices(here: Sequence[Result], play: Play) -> Figure:
    """The score on each task after each task, one square per method."""
    columns = min(len(here), 5)
    rows = -(-len(here) // columns)
    size = 0.34 * len(here[0].tasks) + 1.1
    figure = Figure(figsize=(columns * size, rows * (size + 0.2)), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, result in zip(grid.flat, here, strict=False):
        values = 100 * result.scores(play)[:, :, -1].mean(0)
        axes.set_axis_on()
        axes.imshow(values, cmap="RdYlGn", vmin=0, vmax=100, alpha=0.75)
        for after, on in np.ndindex(values.shape):
            axes.text(on, after, f"{values[after, on]:.0f}", ha="center", va="center", fontsize=7)
        tasks = [escaping.label(task) for task in result.tasks]
        axes.set_xticks(range(len(tasks)), tasks, rotation=90, fontsize=7)
        axes.set_yticks(range(len(tasks)), tasks if axes in grid[:, 0] else [""] * len(tasks), fontsize=7)
        axes.tick_params(length=0)
        axes.set_title(escaping.label(result.label), fontsize=9)
    figure.suptitle(f"{_title(here[0])}: after (row), on (column)", fontsize=9)
    return figure


def horizontal(bars: Sequence[tuple[str, Result]], results: Sequence[Result], colors: dict[str, str], play: Play) -> Figure:
    """P of a method and its variations."""
    figure = Figure(figsize=(5.0, 0.8 + 0.32 * len(bars)))
    axes = figure.subplots()
    for place, (_, result) in enumerate(bars):
        reached = summaries(result, results, play)["P"]
        axes.barh(place, reached.mean, color=colors[result.label], height=0.7, alpha=1.0 if place == 0 else 0.75)
        axes.plot([reached.low, reached.high], [place, place], color="black", linewidth=1)
        axes.annotate(f"{reached.mean:.1f}", (max(reached.mean, reached.high) + 1, place), va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [escaping.label(name) for name, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 110)
    axes.set_xlabel("P")
    axes.set_title(f"{escaping.label(bars[0][1].label)}, {_title(bars[0][1])}", fontsize=9)
    return figure


def toy() -> Figure:
    """The landscape of two modes with its slopes, and where tied and free means end."""
    figure = Figure(figsize=(7.0, 3.1), layout="constrained")
    plane, line = figure.subplots(1, 2)
    ticks = np.linspace(-4, 4, 81)
    height, slope = theory.landscape(ticks)
    plane.contourf(ticks, ticks, height, levels=24, cmap="Blues_r")
    some = slice(None, None, 8)
    plane.quiver(ticks[some], ticks[some], -slope[some, some, 0], -slope[some, some, 1], color="white", alpha=0.8, width=0.004)
    tied, free = theory.descend(np.array([3.0, 3.0]), tied=True), theory.descend(np.array([0.5, 1.5]), tied=False)
    at = np.linspace(-6, 6, 241)
    line.plot(at, theory.density(theory.OPTIMAL, at), color="0.6", linewidth=4, label="data")
    for name, way, color in (("one shared mean", tied, COLORS[1]), ("a mean for each mode", free, COLORS[3])):
        plane.plot(way[:, 0], way[:, 1], color=color, linewidth=1.8)
        plane.plot(*way[-1], "o", color=color)
        line.plot(at, theory.density(way[-1], at), color=color, linewidth=1.6, label=name)
    plane.set_xlabel("first mean")
    plane.set_ylabel("second mean")
    plane.set_aspect("equal")
    line.set_ylabel("density")
    line.set_ylim(0, 0.55)
    line.legend(fontsize=8, loc="upper left")
    return figure


def _title(result: Result) -> str:
    return f"{escaping.label(result.stream)}, {escaping.label(result.quality)} data, {result.updates:,} updates per task"
