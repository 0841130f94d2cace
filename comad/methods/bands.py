"""Re-use without a threshold in units of anything: a head knows the band in which it scores nine of ten of its own situations.

Scores of two heads have no common unit, but "how many of these situations would I score as I score my own" has: it is 0.9 of a head's own
data by construction, little of noise, and comparable between heads however long each one was trained.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad.methods.library import FOLLOWED

INSIDE = 0.9
"""Share of a head's own situations that its band holds."""
NARROWEST = 1e-3
"""Least width of a band."""


class Bands(eqx.Module):
    """Between which scores every head's own situations lie, and how much of noise lies there too."""

    low: Float[Array, " head"]
    high: Float[Array, " head"]
    noise: Float[Array, " head"]
    """Share of noisy situations inside."""

    @classmethod
    def create(cls, capacity: int) -> "Bands":
        """Bands that hold nothing."""
        return cls(jnp.full(capacity, -1.0), jnp.full(capacity, -1.0 + NARROWEST), jnp.zeros(capacity))

    def outside(self, odds: Float[Array, "head *batch"]) -> Float[Array, "head *batch"]:
        """How far scores lie outside each head's band, in widths of that band."""
        low, high = (bound.reshape(-1, *[1] * (odds.ndim - 1)) for bound in (self.low, self.high))
        return jnp.maximum(jnp.maximum(low - odds, odds - high), 0.0) / (high - low)

    def likeness(self, odds: Float[Array, "head *batch"], there: Bool[Array, "*batch"]) -> Float[Array, " head"]:
        """How much situations are like each head's own: 1 if as many lie in its band, 0 if only as many as of noise."""
        axes = tuple(range(1, odds.ndim))
        inside = ((self.outside(odds) <= 0.0) & there[None]).sum(axes) / jnp.maximum(there.sum(), 1)
        return (inside - self.noise) / jnp.maximum(INSIDE - self.noise, 1e-2)

    def learn(
        self,
        head: Int[Array, ""],
        own: Float[Array, "*batch"],
        noisy: Float[Array, "*batch"],
        there: Bool[Array, "*batch"],
        share: float | Float[Array, ""],
    ) -> "Bands":
        """Move a head's band by a share towards its scores of its own situations; 1 sets it."""
        low, high = quantile(own, there, 0.5 - INSIDE / 2), quantile(own, there, 0.5 + INSIDE / 2)
        high = jnp.maximum(high, low + NARROWEST)
        caught = ((noisy >= low) & (noisy <= high) & there).sum() / jnp.maximum(there.sum(), 1)

        def follow(values: Array, value: Array) -> Array:
            return values.at[head].add(share * (value - values[head]))

        return Bands(follow(self.low, low), follow(self.high, high), follow(self.noise, caught))


def quantile(values: Float[Array, "*batch"], there: Bool[Array, "*batch"], share: float) -> Float[Array, ""]:
    """The value below which a share of those lie that are there."""
    ordered = jnp.sort(jnp.where(there, values, jnp.inf).ravel())
    place = share * jnp.maximum(there.sum() - 1, 0)
    below, above = ordered[jnp.floor(place).astype(int)], ordered[jnp.ceil(place).astype(int)]
    return below + (place - jnp.floor(place)) * (above - below)


def follow_share(update: Int[Array, ""]) -> Float[Array, ""]:
    """How much of a batch flows into a band: all of the first one, then ever less, as in a mean, until as little as of other scores."""
    return jnp.maximum(1.0 / (1.0 + update), FOLLOWED)
