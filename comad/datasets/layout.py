"""Which arrays a dataset holds, of which kind and shape: derived from the world's spec, never from the files.

Every array has one row per moment; an episode of L steps has L + 1 moments, the last one without a reward. Whole-number features are
bytes in the world's own units, masks are bits, and what follows from something else is left out: one-hot codes, the agents' numbers and
last actions, and, where they follow from the state, the observations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from comad.types import Continuous, Feature, Spec, Step

Values = dict[str, np.ndarray]
"""Arrays by the names of their columns, as the program sees them."""


@dataclass(frozen=True)
class Column:
    """One array of the store, without its leading axis."""

    name: str
    kind: Literal["features", "bits", "actions", "number"]
    shape: tuple[int, ...]
    """Shape of a moment as the program sees it: bits are packed along the last axis on disk."""
    dtype: str
    features: tuple[Feature, ...] = ()

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of a moment on disk."""
        return (*self.shape[:-1], -(-self.shape[-1] // 8)) if self.kind == "bits" else self.shape


def columns(spec: Spec) -> tuple[Column, ...]:
    """Every per-moment array of a dataset of this world."""
    agents, others, targets = spec.num_agents, spec.num_agents - 1, spec.num_targets
    state = (
        _features("state.agents", (agents,), spec.state_agent),
        _features("state.targets", (targets,), spec.state_target),
        _features("state.context", (), spec.context),
        _bits("state.agent_present", (agents,)),
        _bits("state.target_present", (targets,)),
    )
    seen = (
        _features("tokens.own", (agents,), spec.own),
        _features("tokens.allies", (agents, others), spec.ally),
        _features("tokens.targets", (agents, targets), spec.target),
        _bits("tokens.ally_seen", (agents, others)),
        _bits("tokens.target_seen", (agents, targets)),
    )
    act: tuple[Column, ...]
    if isinstance(spec.actions, Continuous):
        act = (Column("actions", "actions", (agents, len(spec.actions.components)), "float32"),)
    else:
        act = (Column("actions", "actions", (agents,), "uint8"), _bits("available", (agents, spec.num_actions)))
    # The mask is kept even where it follows from the state: another rounding of a distance must not forbid what was done.
    return (*state, *(() if spec.seen_in_state else seen), *act, Column("reward", "number", (), "float32"))


SHOWN: Mapping[str, Callable[[Step], Any]] = {
    "state.agents": lambda step: step.state.agents,
    "state.targets": lambda step: step.state.targets,
    "state.context": lambda step: step.state.context,
    "state.agent_present": lambda step: step.state.agent_present,
    "state.target_present": lambda step: step.state.target_present,
    "tokens.own": lambda step: step.tokens.own,
    "tokens.allies": lambda step: step.tokens.allies,
    "tokens.targets": lambda step: step.tokens.targets,
    "tokens.ally_seen": lambda step: step.tokens.ally_seen,
    "tokens.target_seen": lambda step: step.tokens.target_seen,
    "available": lambda step: step.available,
    "reward": lambda step: step.reward,
}
"""Where a step shows what a column keeps. Names of columns stay when attributes are renamed."""

EPISODE_COLUMNS = (
    Column("episode.start", "number", (), "int64"),
    Column("episode.length", "number", (), "int32"),
    Column("episode.success", "number", (), "bool"),
    Column("episode.terminated", "number", (), "bool"),
)
"""The episode table: first moment, number of steps, outcome, and whether the end was one that no value lies beyond."""


def _features(name: str, lead: tuple[int, ...], features: tuple[Feature, ...]) -> Column:
    whole = bool(features) and all(feature.integral for feature in features)
    return Column(name, "features", (*lead, len(features)), "uint8" if whole else "float32", features)


def _bits(name: str, shape: tuple[int, ...]) -> Column:
    return Column(name, "bits", shape, "uint8")


def encode(column: Column, values: np.ndarray) -> np.ndarray:
    """Values as the program sees them, as they are stored."""
    if column.kind == "bits":
        return np.packbits(values.astype(bool), axis=-1)
    if column.kind == "features" and column.dtype == "uint8":
        return np.round(values / scales(column)).astype(np.uint8)
    return values.astype(column.dtype, copy=False)


def decode(column: Column, stored: np.ndarray) -> np.ndarray:
    """Stored values as the program sees them; the same bits as the world made."""
    if column.kind == "bits":
        return np.unpackbits(stored, axis=-1, count=column.shape[-1]).astype(bool)
    if column.kind == "features" and column.dtype == "uint8":
        return stored.astype(np.float32) * scales(column)
    return np.asarray(stored)


def scales(column: Column) -> np.ndarray:
    """What stored whole numbers are multiplied by, feature by feature."""
    return np.array([feature.scale for feature in column.features], np.float32)


def episode_starts(lengths: np.ndarray) -> np.ndarray:
    """First moment of every episode, laid end to end."""
    moments = np.asarray(lengths, np.int64) + 1
    return np.cumsum(moments) - moments
