"""Methods over all streams at once: the mean, the interquartile mean, and how likely one beats another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comad.metrics import Statistic, bootstrap, interquartile_mean, probability_of_improvement
from comad.reports.results import Place, Result, per_seed, place_of
from comad.runs.record import Play


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Overall:
    """One method on all streams of a budget."""

    updates: int
    label: str
    places: tuple[Place, ...]
    """All that are compared."""
    missing: tuple[Place, ...]
    """Those on which it has no finished run. Where there are any, nothing below is computed: means over other streams do not compare."""
    seeds: int
    mean: Estimate | None
    middle: Estimate | None
    """The interquartile mean."""
    improvement: dict[str, float]
    """How likely a run of it beats one of another method on the same stream, by that method's name."""


def overall(results: Sequence[Result], play: Play = "usual") -> list[Overall]:
    """One row per budget and method, the best mean first; variants of methods are left out, and so are streams with a single method."""
    plain = [result for result in results if result.label == result.method]
    rows = []
    for updates in sorted({result.updates for result in plain}):
        here = [result for result in plain if result.updates == updates]
        at = {place: [result for result in here if place_of(result) == place] for place in sorted({place_of(result) for result in here})}
        places = tuple(place for place, found in at.items() if len(found) > 1)
        values = {label: _values(label, [at[place] for place in places], play) for label in sorted({result.label for result in here})}
        complete = {label: found for label, found in values.items() if found is not None}
        for label, found in values.items():
            there = {place for place in places if any(result.label == label for result in at[place])}
            missing = tuple(place for place in places if place not in there)
            if there:
                rows.append(_row(updates, label, places, missing, found, complete))
    return sorted(rows, key=lambda row: (row.updates, row.mean is None, -row.mean.value if row.mean else 0.0, row.label))


def _row(
    updates: int,
    label: str,
    places: tuple[Place, ...],
    missing: tuple[Place, ...],
    values: np.ndarray | None,
    complete: dict[str, np.ndarray],
) -> Overall:
    if values is None:
        return Overall(updates, label, places, missing, 0, None, None, {})
    improvement = {other: probability_of_improvement(values, theirs) for other, theirs in complete.items() if other != label}
    mean, middle = (_estimate(values, statistic) for statistic in (_mean, interquartile_mean))
    return Overall(updates, label, places, missing, values.shape[1], mean, middle, improvement)


def _values(label: str, places: Sequence[Sequence[Result]], play: Play) -> np.ndarray | None:
    """P of a method ``[place, seed]`` for the seeds that it has everywhere; none if it is missing somewhere."""
    found = [next((result for result in place if result.label == label), None) for place in places]
    there = [result for result in found if result is not None]
    if not there or len(there) < len(places):
        return None
    common = sorted(set.intersection(*(set(result.seeds) for result in there)))
    if not common:
        return None
    by_seed = [dict(zip(result.seeds, per_seed(result, (), play)["P"], strict=True)) for result in there]
    return np.array([[values[seed] for seed in common] for values in by_seed])


def _mean(values: np.ndarray) -> np.ndarray:
    return np.asarray(values.mean(axis=(-2, -1)))


def _estimate(values: np.ndarray, statistic: Statistic) -> Estimate:
    return Estimate(float(statistic(values)), *bootstrap(values, statistic))
