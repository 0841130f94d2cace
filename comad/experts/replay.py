"""A ring of recent experience: parallel lanes of time from which windows are drawn."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from comad.types import PRNGKey


class Replay(eqx.Module):
    """Arrays [lane, time, ...], written in turn; what a lane holds is contiguous in time up to the place of the next write."""

    entries: PyTree[Array]
    place: Int[Array, ""]
    count: Int[Array, ""]

    @classmethod
    def create(cls, example: PyTree[Any], lanes: int, capacity: int) -> "Replay":
        """Room for ``capacity`` moments per lane, shaped like the example [lane, ...] of one moment."""
        entries = jax.tree.map(lambda leaf: jnp.zeros((lanes, capacity, *leaf.shape[1:]), leaf.dtype), example)
        return cls(entries, jnp.int32(0), jnp.int32(0))

    @property
    def capacity(self) -> int:
        """Moments per lane."""
        return jax.tree.leaves(self.entries)[0].shape[1]

    def add(self, block: PyTree[Array]) -> "Replay":
        """Write a block [lane, time, ...] whose length divides the capacity."""
        length = jax.tree.leaves(block)[0].shape[1]

        def write(ring: Array, values: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(ring, values, self.place, axis=1)

        entries = jax.tree.map(write, self.entries, block)
        return type(self)(entries, (self.place + length) % self.capacity, jnp.minimum(self.count + length, self.capacity))

    def sample(self, key: PRNGKey, batch: int, length: int) -> PyTree[Array]:
        """Windows [batch, length, ...] of neighboring moments, uniform over lanes and starts, never across the place of writing."""
        lane_key, start_key = jax.random.split(key)
        lanes = jax.random.randint(lane_key, (batch,), 0, jax.tree.leaves(self.entries)[0].shape[0])
        oldest = jnp.where(self.count < self.capacity, 0, self.place)
        starts = oldest + jax.random.randint(start_key, (batch,), 0, self.count - length + 1)
        times = (starts[:, None] + jnp.arange(length)[None]) % self.capacity
        return jax.tree.map(lambda ring: ring[lanes[:, None], times], self.entries)
