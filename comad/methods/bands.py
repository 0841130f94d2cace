"""Re-use without a threshold in units of anything: a head knows the tenths into which its own situations fall.

Scores of two heads have no common unit, but "do these situations spread over my scores as my own do" has: of its own data a head knows how
much falls into each of its tenths (a tenth, but where situations repeat themselves), noise is far from that, and both mean the same however
long a head was trained.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

TENTHS = 10
NARROWEST = 1e-3
"""Least width of a band."""
ROUNDING = 1e-4
"""By so much of its size a score may differ from itself: another program computes it in another order. Where many situations have the
score of an edge, that alone would move them all across it."""
LEAST_NOISE = 0.1
"""No less is held to be the distance of noise."""
FOLLOWED = 0.3
"""Share of a batch's tenths that flows into the running ones: batches differ."""


class Bands(eqx.Module):
    """Where every head's own situations lie, and how differently noise does."""

    edges: Float[Array, "head edge"]
    """Between the tenths of a head's scores of its own situations."""
    shares: Float[Array, "head tenth"]
    """Of its own situations between these: equal ones have equal scores and cannot be parted."""
    noise: Float[Array, " head"]
    """How far the same situations with noise are from that, from 0 to 1."""

    @classmethod
    def create(cls, capacity: int) -> "Bands":
        """Bands that hold nothing."""
        # Told its type, else JAX takes it for a constant of any type, which a loaded one is not.
        shares = jnp.full((capacity, TENTHS), 1.0 / TENTHS, jnp.float32)
        return cls(jnp.zeros((capacity, TENTHS - 1)), shares, jnp.ones(capacity))

    def outside(self, odds: Float[Array, "head *batch"]) -> Float[Array, "head *batch"]:
        """How far scores lie outside the eight tenths in the middle of each head's own, in widths of these."""
        low, high = (bound.reshape(-1, *[1] * (odds.ndim - 1)) for bound in (self.edges[:, 0], self.edges[:, -1]))
        return jnp.maximum(jnp.maximum(low - odds, odds - high), 0.0) / jnp.maximum(high - low, NARROWEST)

    def likeness(self, odds: Float[Array, "head *batch"], there: Bool[Array, "*batch"]) -> Float[Array, " head"]:
        """How much situations are like each head's own: 1 if they spread over its scores as these do, 0 if no more than noise does."""
        apart = jax.vmap(distance, in_axes=(0, 0, 0, None))(odds, self.edges, self.shares, there)
        return self.likeness_of(apart)

    def known(self, odds: Float[Array, "head *batch"], there: Bool[Array, "*batch"]) -> Float[Array, " head"]:
        """How many situations are among each head's own: 1 if as many lie in the middle of its scores as of these, 0 if as of noise.

        Whoever has seen more than these situations does not spread over its scores as they do, and knows them all the same.
        """
        inside = jax.vmap(fallen, in_axes=(0, 0, None))(odds, self.edges, there)[:, 1:-1].sum(-1)
        own = jnp.maximum(self.shares[:, 1:-1].sum(-1), 1.0 / TENTHS)
        return self.likeness_of(jnp.maximum(1.0 - inside / own, 0.0))

    def likeness_of(self, apart: Float[Array, " head"]) -> Float[Array, " head"]:
        """The same by how far situations are from each head's own; where an estimator cannot tell noise, it is not trusted far."""
        return 1.0 - apart / jnp.maximum(self.noise, LEAST_NOISE)

    def learn(
        self,
        head: Int[Array, ""],
        own: Float[Array, "*batch"],
        noisy: Float[Array, "*batch"],
        there: Bool[Array, "*batch"],
        share: float | Float[Array, ""],
    ) -> "Bands":
        """Move a head's tenths by a share towards its scores of its own situations; 1 sets them."""
        edges = jnp.stack([quantile(own, there, number / TENTHS) for number in range(1, TENTHS)])
        shares = fallen(own, edges, there)

        def follow(values: Array, value: Array) -> Array:
            return values.at[head].add(share * (value - values[head]))

        away = distance(noisy, edges, shares, there)
        return Bands(follow(self.edges, edges), follow(self.shares, shares), follow(self.noise, away))


def fallen(scores: Float[Array, "*batch"], edges: Float[Array, " edge"], there: Bool[Array, "*batch"]) -> Float[Array, " tenth"]:
    """The share of scores below the first edge, between each two, and above the last."""
    barely = edges + ROUNDING * jnp.abs(edges).max()
    above = (scores[..., None] > barely.reshape(*[1] * scores.ndim, -1)) & there[..., None]
    shares = above.reshape(-1, len(edges)).sum(0) / jnp.maximum(there.sum(), 1)
    return -jnp.diff(shares, prepend=1.0, append=0.0)


def distance(
    scores: Float[Array, "*batch"], edges: Float[Array, " edge"], shares: Float[Array, " tenth"], there: Bool[Array, "*batch"]
) -> Float[Array, ""]:
    """Total variation between how scores fall and how a head's own do: the share that would have to move, 1 at most."""
    return 0.5 * jnp.abs(fallen(scores, edges, there) - shares).sum() / (1.0 - shares.min())


def quantile(values: Float[Array, "*batch"], there: Bool[Array, "*batch"], share: float) -> Float[Array, ""]:
    """The value below which a share of those lie that are there."""
    ordered = jnp.sort(jnp.where(there, values, jnp.inf).ravel())
    place = share * jnp.maximum(there.sum() - 1, 0)
    below, above = ordered[jnp.floor(place).astype(int)], ordered[jnp.ceil(place).astype(int)]
    return below + (place - jnp.floor(place)) * (above - below)


def follow_share(number: Int[Array, ""]) -> Float[Array, ""]:
    """How much of a batch flows into a band: all of the first one, then ever less, as in a mean, down to a share."""
    return jnp.maximum(1.0 / (1.0 + number), FOLLOWED)
