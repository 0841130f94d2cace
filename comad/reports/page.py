"""One page with everything: tables, curves and provenance, drawn by the page itself from the data in it. Opens from disk."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np

from comad.metrics import performance_over_time
from comad.reports.results import METRICS, Flaw, Mode, Result, summaries
from comad.reports.tables import main_table

MODES: tuple[Mode, ...] = ("sampled", "greedy")


def build(results: Sequence[Result], flaws: Sequence[Flaw]) -> str:
    """The page as HTML."""
    parts = files("comad.reports") / "page"
    ranks = {
        mode: {(row.stream, row.quality, row.updates, row.label): (row.rank, row.theirs) for row in main_table(results, mode)}
        for mode in MODES
    }
    found = []
    for result in results:
        key = (result.stream, result.quality, result.updates, result.label)
        modes = {mode: {**describe(result, results, mode), "rank": ranks[mode][key][0]} for mode in MODES}
        found.append({**outline(result), "published": ranks["sampled"][key][1], "modes": modes})
    data = json.dumps({"results": found, "flaws": [flaw.why for flaw in flaws]}, separators=(",", ":"), allow_nan=False)
    # Inside a script element only this could end it early.
    page = (parts / "page.html").read_text().replace("/*DATA*/", data.replace("<", "\\u003c"))
    return page.replace("/*STYLE*/", (parts / "page.css").read_text()).replace("/*SCRIPT*/", (parts / "page.js").read_text())


def outline(result: Result) -> dict[str, Any]:
    """What a result is, and how to make it again."""
    settings = result.records[0].settings
    identity = settings["identity"]
    return {
        "stream": result.stream,
        "quality": result.quality,
        "updates": result.updates,
        "label": result.label,
        "seeds": result.seeds,
        "tasks": result.tasks,
        "points": identity["budget"]["evaluations"] + 1,
        "heads": growth(result),
        "command": f"comad train {result.method} --stream {result.stream} --quality {result.quality} --updates {result.updates} --seed N",
        "provenance": {name: value for name, value in settings.items() if name != "earlier"},
    }


def describe(result: Result, results: Sequence[Result], mode: Mode) -> dict[str, Any]:
    """Numbers, curves and the matrix of one way of playing."""
    scores = result.scores(mode)
    seen = performance_over_time(scores, "seen")
    metrics = summaries(result, results, mode)
    return {
        "metrics": {name: {size: _short(getattr(metrics[name], size), 3) for size in SIZES} for name in METRICS if name in metrics},
        "curves": {"seen": _curve(seen), "tasks": [_curve(scores[..., task]) for task in range(scores.shape[-1])]},
        "matrix": _short(scores[:, :, -1].mean(0)),
    }


SIZES = ("mean", "std", "low", "high")


def growth(result: Result) -> list[dict[str, Any]]:
    """How the library of the first seed grew; empty for methods without one."""
    return [
        {**asdict(entry), "scores": _short(entry.scores), "own": _short(entry.own), "noise": _short(entry.noise)}
        for entry in result.records[0].growth()
    ]


def _curve(values: np.ndarray) -> dict[str, Any]:
    """Mean and deviation over seeds of ``[seed, task, point]``, task after task."""
    flat = values.reshape(len(values), -1)
    return {"mean": _short(flat.mean(0)), "std": _short(flat.std(0))}


def _short(values: Any, digits: int = 4) -> Any:
    return np.round(np.asarray(values, float), digits).tolist()
