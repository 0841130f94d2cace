"""From compact arrays on the device to the batches that methods learn from."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from comad.datasets.layout import Column, columns, scales
from comad.datasets.packing import Index
from comad.datasets.store import Dataset
from comad.envs import look
from comad.tokens import complete, no_actions, state_of, tokens_of
from comad.types import Batch, Continuous, Moments, Spec

Resident = Mapping[str, Array]
"""A dataset's stored arrays on the device, and per moment ``terminated`` and ``outcome``."""


def upload(dataset: Dataset) -> Resident:
    """Put a dataset on the device as it is stored, about a tenth of what its values would take."""
    terminated = np.zeros(len(dataset.arrays["reward"]), bool)
    terminated[np.asarray(dataset.starts) + np.asarray(dataset.lengths) - 1] = np.asarray(dataset.arrays["episode.terminated"])
    stored = {column.name: jnp.asarray(np.asarray(dataset.arrays[column.name])) for column in columns(dataset.spec)}
    return {**stored, "terminated": jnp.asarray(terminated), "outcome": jnp.asarray(_outcomes(dataset))}


def _outcomes(dataset: Dataset) -> np.ndarray:
    """How much better than others every moment's episode ended (`Batch.outcome`)."""
    starts, lengths = np.asarray(dataset.starts), np.asarray(dataset.lengths)
    totals = np.add.reduceat(np.asarray(dataset.arrays["reward"], np.float64), starts)
    spread = totals.std()
    # What differs by rounding alone is alike.
    outcomes = (totals - totals.mean()) / spread if spread > 1e-6 * max(1.0, np.abs(totals).max()) else np.zeros(len(totals))
    return np.repeat(outcomes, lengths + 1).astype(np.float32)


def gather(spec: Spec, resident: Resident, index: Index) -> Batch:
    """The batch at an index, decoded; pure, so it runs inside the compiled update."""
    moment, first, step, present = map(jnp.asarray, (index.moment, index.first, index.step, index.present))
    distinct = None
    if index.distinct is not None and index.opening is not None:
        distinct = _moments(spec, resident, jnp.asarray(index.distinct)[:, None], jnp.asarray(index.opening)[:, None])
    moments = _moments(spec, resident, moment, first)
    return Batch(
        tokens=moments.tokens,
        state=moments.state,
        available=moments.available,
        actions=moments.actions,
        reward=resident["reward"][moment] * step,
        terminated=resident["terminated"][moment] & step,
        first=first,
        step=step,
        present=present,
        outcome=resident["outcome"][moment] * present,
        distinct=distinct,
        place=None if index.place is None else jnp.asarray(index.place),
    )


def _moments(spec: Spec, resident: Resident, moment: Int[Array, "row time"], first: Bool[Array, "row time"]) -> Moments:
    """What some moments show, decoded."""
    values = {column.name: _decode(column, resident[column.name][moment]) for column in columns(spec)}
    state = state_of(values, "state.")
    tokens = look(spec, state) if spec.seen_in_state else tokens_of(values, "tokens.")
    actions = values["actions"]
    continuous = isinstance(spec.actions, Continuous)
    actions = actions if continuous else actions.astype(jnp.int32)
    # The step before is the one before it in the row; before a row that begins within an episode it is looked up.
    earlier = resident["actions"][jnp.maximum(moment[:, :1] - 1, 0)]
    before = jnp.concatenate([earlier if continuous else earlier.astype(jnp.int32), actions[:, :-1]], axis=1)
    begins = first.reshape(*first.shape, *[1] * (actions.ndim - 2))
    last_actions = jnp.where(begins, no_actions(spec)[None, None], before)
    available = jnp.ones((*actions.shape[:3], 0), bool) if continuous else values["available"]
    return Moments(complete(tokens, last_actions, spec), state, available, actions)


def _decode(column: Column, stored: Array) -> Array:
    """`layout.decode` on the device."""
    if column.kind == "bits":
        places = jnp.arange(7, -1, -1, dtype=jnp.uint8).reshape(*[1] * stored.ndim, 8)
        bits = (stored[..., None] >> places) & 1
        return bits.reshape(*stored.shape[:-1], -1)[..., : column.shape[-1]].astype(bool)
    if column.kind == "features" and column.dtype == "uint8":
        return stored.astype(jnp.float32) * scales(column).reshape(*[1] * (stored.ndim - 1), -1)
    return stored
