"""What a stream of scores says: performance, backward and forward transfer, and how sure one can be. NumPy and SciPy only.

Everything is a function of one array ``scores[seed, task, point, on]``: the score in [0, 1] on task ``on``, at evaluation ``point`` of the
time in which task ``task`` is learned. Point 0 is before the first update of that task, the last point after its last one. A missing score
is an error, never a zero.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from comad.errors import UserError

EXACT_DIGITS = 9
"""Decimals of a number out of a hundred that are more than rounding errors."""
Scores = np.ndarray
Statistic = Callable[[np.ndarray], np.ndarray]
"""Reduces values [..., stream, seed] to one number per leading index."""


def check(scores: Scores) -> None:
    """Refuse arrays that are no complete scores."""
    if scores.ndim != 4 or scores.shape[1] != scores.shape[3] or scores.shape[2] < 2:
        raise UserError(f"scores must have the axes seed, task, point, on with as many tasks on both, not shape {list(scores.shape)}")
    if not np.isfinite(scores).all():
        seed, task, point, on = np.argwhere(~np.isfinite(scores))[0]
        raise UserError(f"the score on task {on} at point {point} of task {task} is missing for seed number {seed}")


def percent(shares: Any) -> np.ndarray:
    """Returns shares as numbers out of a hundred.

    Errors of the last bits are rounded away, because they would decide how a number such as 28.75
    is shown with one decimal: two ways to compute it would then show two numbers.
    """
    return np.asarray(np.round(100 * np.asarray(shares, float), EXACT_DIGITS))


def performance_over_time(scores: Scores, over: Literal["all", "seen"] = "all") -> np.ndarray:
    """P(t) [seed, task, point]: the mean score of the tasks seen so far, the others counted as zero ("all") or left out ("seen")."""
    check(scores)
    tasks = scores.shape[1]
    seen = np.tril(np.ones((tasks, tasks)))[None, :, None]
    divisor = tasks if over == "all" else seen.sum(-1)
    return (scores * seen).sum(-1) / divisor


def performance(scores: Scores) -> np.ndarray:
    """P [seed]: the mean score over all tasks in the end."""
    check(scores)
    return scores[:, -1, -1].mean(-1)


def late_performance(scores: Scores) -> np.ndarray:
    """P [seed] as the mean over the last quarter of the last task's evaluations.

    In one evaluation all methods meet the same few starts, which may be good or bad ones; in several that evens out.
    """
    check(scores)
    evaluations = scores.shape[2] - 1
    return scores[:, -1, -max(1, evaluations // 4) :].mean((1, 2))


def backward_transfer(scores: Scores, over: Literal["earlier", "all"] = "earlier") -> np.ndarray:
    """BwT [seed]: how much better (or worse) tasks are done in the end than when they had just been learned.

    The last task cannot change any more: "earlier" averages over the others, which the published tables need, "all" counts its zero, as
    the published text says.
    """
    check(scores)
    tasks = scores.shape[1]
    just_learned = scores[:, np.arange(tasks), -1, np.arange(tasks)]
    change = scores[:, -1, -1] - just_learned
    if over == "earlier" and tasks > 1:
        return change[:, :-1].mean(-1)
    return change.mean(-1)


def forward_transfer(scores: Scores, reference: Scores) -> np.ndarray:
    """FwT [seed]: how much faster tasks are learned than by a learner that starts each from scratch.

    The difference of the two curves on each task, averaged over its own time, both ends included. The reference is averaged over its seeds.
    """
    check(scores)
    check(reference)
    if scores.shape[1:] != reference.shape[1:]:
        raise UserError(f"forward transfer needs scores on one grid, not {list(scores.shape[1:])} and {list(reference.shape[1:])}")
    tasks = np.arange(scores.shape[1])
    own, scratch = scores[:, tasks, :, tasks], reference.mean(0)[tasks, :, tasks]
    return (own - scratch[:, None]).mean(axis=(0, 2))


@dataclass(frozen=True)
class Summary:
    """A number over seeds, and how sure it is."""

    mean: float
    std: float
    """Over seeds, with their number as divisor, as published tables have it."""
    low: float
    high: float
    """Ends of the 95 % interval of the mean."""


def summarize(values: np.ndarray, least: float = -np.inf, most: float = np.inf) -> Summary:
    """Mean, spread and Student's interval over seeds, cut to the values that there can be.

    Not a bootstrap: one of three seeds never leaves their range, and holds the mean of many in 74 of 100 cases instead of 95.
    """
    values = np.asarray(values, float)
    count, mean = len(values), float(values.mean())
    reach = float(stdtrit(count - 1, 0.975) * values.std(ddof=1) / np.sqrt(count)) if count > 1 else 0.0
    return Summary(mean, float(values.std()), max(mean - reach, least), min(mean + reach, most))


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half of all runs and streams: less moved by a lucky or unlucky run than the mean. Over the last two axes."""
    flat = np.sort(values.reshape(*values.shape[:-2], -1), axis=-1)
    count = flat.shape[-1]
    # Runs at the edge of the middle half count with the share of them that lies inside.
    edges = np.arange(count + 1)
    weights = np.clip(np.minimum(edges[1:], 0.75 * count) - np.maximum(edges[:-1], 0.25 * count), 0.0, None)
    return np.asarray((flat * weights).sum(-1) / weights.sum())


def bootstrap(values: np.ndarray, statistic: Statistic, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95 % interval of a statistic of ``values[stream, seed]``, seeds drawn anew within every stream."""
    random = np.random.default_rng(seed)
    streams, seeds = values.shape
    drawn = random.integers(seeds, size=(resamples, streams, seeds))
    found = statistic(values[np.arange(streams)[None, :, None], drawn])
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)


def probability_of_improvement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """How likely a run of ours beats one of theirs on the same stream; ties count half. Both ``[stream, seed]``."""
    wins = (ours[:, :, None] > theirs[:, None]) + 0.5 * (ours[:, :, None] == theirs[:, None])
    return float(wins.mean())
