"""What a dataset's numbers say about the team that made it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from comad.types import Discrete, Spec


@dataclass(frozen=True)
class Statistics:
    """Computed from the bytes, so that a card can never say something else than the data."""

    episodes: int
    moments: int
    length: float
    """Mean steps per episode."""
    shortest: int
    longest: int
    total: float
    """Mean return."""
    total_spread: float
    """Standard deviation of the return."""
    success: float
    """Share of episodes that succeeded."""
    at_limit: int
    """Episodes that lasted as long as they may."""
    actions: tuple[int, ...]
    """How often each discrete action was taken; the extra last moments do not count."""


def statistics(spec: Spec, stored: Mapping[str, np.ndarray]) -> Statistics:
    """Statistics of stored arrays."""
    starts, lengths = np.asarray(stored["episode.start"]), np.asarray(stored["episode.length"])
    totals = np.add.reduceat(np.asarray(stored["reward"], np.float64), starts)
    acted = np.ones(len(stored["reward"]), bool)
    acted[starts + lengths] = False
    counts: tuple[int, ...] = ()
    if isinstance(spec.actions, Discrete):
        counts = tuple(np.bincount(np.asarray(stored["actions"])[acted].ravel(), minlength=spec.num_actions).tolist())
    return Statistics(
        episodes=len(starts),
        moments=len(stored["reward"]),
        length=float(lengths.mean()),
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        total=float(totals.mean()),
        total_spread=float(totals.std()),
        success=float(np.asarray(stored["episode.success"]).mean()),
        at_limit=int((lengths >= spec.limit).sum()),
        actions=counts,
    )
