"""One page with everything: tables, curves, skills, replays, provenance, drawn by the page itself from the data in it. Opens from disk."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import numpy as np

from comad import theory
from comad.errors import MALFORMED, UserError
from comad.escaping import json_text
from comad.metrics import Summary, late_performance, percent, performance_over_time, summarize
from comad.reports.overall import Overall, overall
from comad.reports.results import UNDEFINED, Flaw, Result, identity_of, published, published_growth, summaries, unequal, vanished
from comad.reports.tables import main_table
from comad.reports.variations import families, orders, orphans
from comad.runs.record import MODES, Mode, Play, read_portrait, read_run, usual_mode
from comad.runs.standing import Standing
from comad.settings import settings

Command = Callable[[Mapping[str, Any], str], str]
"""From a run's identity and the name of its folder to what makes it again."""
COUNTED = ("learning_seconds", "learning_count", "evaluation_seconds", "evaluation_count", "compiling_seconds", "peak_bytes")
SCRIPTS = ("base", "scores", "curves", "library", "variations", "replays", "runs", "start")
"""Parts of the page's program, in order."""
TICKS, SPAN = 33, 4.0
"""Of the toy's landscape: points per side, and how far it reaches."""


def build(data: str, watched: bool = False) -> str:
    """The page as HTML, around what `collect` gave; a watched one asks the server it came from for news, any other asks nobody."""
    parts = files("comad.reports") / "page"
    page = (parts / "page.html").read_text().replace("/*POLICY*/", policy(watched))
    # The data last: whatever it holds is then not searched any more. Inside a script element only "<" could end it early.
    page = page.replace("/*STYLE*/", (parts / "page.css").read_text()).replace("/*SCRIPT*/", _script(watched))
    return page.replace("/*DATA*/", data.replace("<", "\\u003c"))


def policy(watched: bool = False) -> str:
    """What a browser may do for the page: run its own program, known by its hash, and no other; ask nobody, or the server it came from."""
    program = base64.b64encode(hashlib.sha256(_script(watched).encode()).digest()).decode()
    ask = "connect-src 'self'; " if watched else ""
    allowed = f"default-src 'none'; {ask}style-src 'unsafe-inline'; script-src 'sha256-{program}'; img-src data:"
    return f"{allowed}; base-uri 'none'; form-action 'none'"


def _script(watched: bool) -> str:
    parts = files("comad.reports") / "page"
    return "\n".join((parts / f"{name}.js").read_text() for name in (*SCRIPTS, *(["watch"] if watched else [])))


def collect(results: Sequence[Result], flaws: Sequence[Flaw], command: Command, play: Play = "usual") -> str:
    """All that the page shows, as JSON; at first one way of playing."""
    ranks = {mode: {_key(row): row.rank for row in main_table(results, mode)} for mode in MODES}
    theirs = {_key(row): row.theirs for row in main_table(results)}
    found = []
    for result in results:
        modes = {mode: {**describe(result, results, mode), "rank": ranks[mode][_key(result)]} for mode in MODES}
        about = {**outline(result), "command": made_by(result, command), "published": theirs[_key(result)]}
        found.append({**about, "usual": result.mode(), "modes": modes})
    shown: dict[str, Any] = {
        "play": play,
        "results": found,
        "overall": {play: [describe_overall(row) for row in overall(results, play)] for play in get_args(Play)},
        "families": [
            {
                "base": results.index(family.base),
                "variations": [[results.index(one.result), one.described()] for one in family.variations],
                "swept": {name: [[value, results.index(one)] for value, one in values] for name, values in family.swept().items()},
            }
            for family in families(results)
        ],
        "orphans": [results.index(one) for one in orphans(results)],
        "orders": [[results.index(one) for one in same] for same in orders(results)],
        "toy": toy(),
        "going": [],
        "unequal": unequal(results),
        "flaws": [flaw.why for flaw in flaws if flaw.standing is None],
    }
    for flaw in flaws:
        if flaw.standing:
            try:
                shown["going"].append(going(flaw.path, flaw.standing))
            except (UserError, *MALFORMED) as error:
                if vanished(flaw.path):
                    continue
                shown["flaws"].append(f"{flaw.path} does not describe a training ({error!r})")
    return json_text(json.dumps(shown, separators=(",", ":"), allow_nan=False))


def _key(found: Any) -> tuple[str, str, int, str]:
    return found.stream, found.quality, found.updates, found.label


def outline(result: Result) -> dict[str, Any]:
    """What a result is, what it cost, and how to make it again."""
    recorded = result.records[0].settings
    identity = recorded["identity"]
    return {
        "stream": result.stream,
        "quality": result.quality,
        "updates": result.updates,
        "label": result.label,
        "method": result.method,
        "seeds": result.seeds,
        "tasks": result.tasks,
        "points": identity["budget"]["evaluations"] + 1,
        "heads": growth(result),
        "published_heads": published_growth(result.stream, result.quality) if result.method == "comad" else [],
        "cost": cost(result),
        "portrait": portrait(result),
        "undefined": UNDEFINED.get(result.method, ()),
        "provenance": {name: value for name, value in recorded.items() if name != "earlier"},
        "programs": programs(result),
    }


def programs(result: Result) -> dict[str, list[str]]:
    """By which versions of this package the seeds were made, in the order in which each went on: they need not all be the same."""
    found: dict[str, list[str]] = {}
    for seed, record in zip(result.seeds, result.records, strict=True):
        earlier = record.settings.get("earlier")
        sittings = [*(earlier if isinstance(earlier, list) else ()), record.settings]
        found[str(seed)] = list(dict.fromkeys(map(_program, sittings)))
    return found


def _program(sitting: Any) -> str:
    told = sitting.get("comad") if isinstance(sitting, Mapping) else None
    return f"{told.get('version')}, source {told.get('source')}" if isinstance(told, Mapping) else "unknown"


def made_by(result: Result, command: Command) -> str:
    """What makes the first seed of a result again."""
    try:
        return command(identity_of(result), result.records[0].path.resolve().name)
    except (UserError, *MALFORMED) as error:
        return f"# this version of comad cannot make it again: {error}"


def portrait(result: Result) -> dict[str, Any] | None:
    """That of the first seed which has a sound one."""
    for record, seed in zip(result.records, result.seeds, strict=True):
        try:
            found = read_portrait(record.path)
        except UserError:
            continue  # named among the flaws
        if found:
            return {"seed": seed, **found}
    return None


def describe(result: Result, results: Sequence[Result], mode: Mode) -> dict[str, Any]:
    """Numbers, curves and the matrix of one way of playing."""
    scores = result.scores(mode)
    seen = performance_over_time(scores, "seen")
    late = percent(late_performance(scores))
    metrics: dict[str, Summary] = {"late P": summarize(late, 0.0, 100.0)}
    metrics |= {str(name): found for name, found in summaries(result, results, mode).items()}
    return {
        "metrics": {name: _rounded(found) for name, found in metrics.items()},
        "curves": {"seen": _curve(seen), "tasks": [_curve(scores[..., task]) for task in range(scores.shape[-1])]},
        "matrix": _short(scores[:, :, -1].mean(0)),
    }


def _rounded(found: Summary) -> dict[str, Any]:
    return {size: _short(value, 3) for size, value in settings(found).items()}


def going(path: Path, standing: Standing) -> dict[str, Any]:
    """How far an unfinished run is, and its scores so far on the tasks it has seen."""
    record = read_run(path)
    identity, mode = record.settings["identity"], usual_mode(record.settings)
    seen = [entry[mode]["score"][: entry["task"] + 1] for entry in record.scores]
    return {
        "name": f"{path.parent.name}/{path.name}",
        "share": _short(standing.done / standing.total),
        "curve": [_short(np.mean(scores)) for scores in seen],
        "points": len(identity["tasks"]) * (identity["budget"]["evaluations"] + 1),
    }


def describe_overall(row: Overall) -> dict[str, Any]:
    """A method over all streams, beside what was published of it."""
    theirs = published().get(("overall", "all", row.label, "P"))
    return {
        "updates": row.updates,
        "label": row.label,
        "places": [" ".join(place) for place in row.places],
        "missing": [" ".join(place) for place in row.missing],
        "seeds": row.seeds,
        "mean": _short(list(settings(row.mean).values()), 2) if row.mean else None,
        "middle": _short(list(settings(row.middle).values()), 2) if row.middle else None,
        "improvement": {name: _short(value) for name, value in row.improvement.items()},
        "published": theirs[0] if theirs else None,
    }


def growth(result: Result) -> list[dict[str, Any]]:
    """How the library of the first seed grew, and P after each task; empty for methods without one."""
    grown = [entry for entry in result.records[0].growth() if entry.own is not None and entry.noise is not None]
    rounded = [{"scores": _short(entry.scores), "own": _short(entry.own), "noise": _short(entry.noise)} for entry in grown]
    rows = zip(grown, rounded, performances(result), strict=False)
    return [{**settings(entry), **short, "P": reached} for entry, short, reached in rows]


def performances(result: Result) -> list[float]:
    """P of the first seed after each task, times 100: tasks not seen yet count as zero, and one that comes back counts once."""
    scores = result.scores()[0, :, -1]
    reached = []
    for number in range(len(result.tasks)):
        seen = dict(zip(result.tasks[: number + 1], scores[number], strict=False))
        reached.append(_short(100 * sum(seen.values()) / len(set(result.tasks)), 2))
    return reached


def cost(result: Result) -> dict[str, Any] | None:
    """Means over the seeds whose cost is known."""
    known = [
        record.cost
        for record in result.records
        if record.cost
        and all(record.cost.get(name, 0) > 0 for name in ("learning_seconds", "evaluation_count"))
        and record.cost.keys() >= set(COUNTED)
    ]
    if not known:
        return None
    return {
        "updates_per_second": _short(np.mean([one["learning_count"] / one["learning_seconds"] for one in known]), 1),
        "evaluation_seconds": _short(np.mean([one["evaluation_seconds"] / one["evaluation_count"] for one in known]), 2),
        "compiling_seconds": _short(np.mean([one["compiling_seconds"] for one in known]), 1),
        "peak_bytes": float(np.max([one["peak_bytes"] for one in known])),
        "seeds": len(known),
    }


@cache
def toy() -> dict[str, Any]:
    """The example of two modes: the objective over both means, ways down it, and the densities in the end."""
    ticks = np.linspace(-SPAN, SPAN, TICKS)
    height, slope = theory.landscape(ticks)
    at = np.linspace(-6, 6, 121)
    ways = {
        "tied": theory.descend(np.array([3.0, 3.0]), tied=True),
        "free": theory.descend(np.array([0.5, 1.5]), tied=False),
    }
    return {
        "ticks": _short(ticks, 3),
        "height": _short(height, 3),
        "slope": _short(slope, 3),
        "ways": {name: _short(way[[*range(20), *range(20, len(way), 10)]], 3) for name, way in ways.items()},
        "at": _short(at, 2),
        "densities": {
            "data": _short(theory.density(theory.OPTIMAL, at)),
            "tied": _short(theory.density(ways["tied"][-1], at)),
            "free": _short(theory.density(ways["free"][-1], at)),
        },
    }


def _curve(values: np.ndarray) -> dict[str, Any]:
    """Mean and deviation over seeds of ``[seed, task, point]``, task after task."""
    flat = values.reshape(len(values), -1)
    return {"mean": _short(flat.mean(0)), "std": _short(flat.std(0))}


def _short(values: Any, digits: int = 4) -> Any:
    return np.round(np.asarray(values, float), digits).tolist()
