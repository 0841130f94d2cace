"""Who knows a task: how alike its situations are to every family's own, how many of them each family knows, and who takes it up."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad.methods.families import PlusState
from comad.methods.learned import Familiarity
from comad.types import Batch, StateTokens

Strangers = Literal["newest", "similar"]
"""Who takes up what nobody knows."""

SITUATIONS = 256
"""So many are looked at in one piece: a layer of them fits the cache of a processor, that of a whole sample does not."""


class Acquaintance(eqx.Module):
    """What every family makes of a task's situations."""

    likeness: Float[Array, " head"]
    """How much they are like its own: 1 as these are, 0 as noise is."""
    knowledge: Float[Array, " head"]
    """How many of them are among its own, on the same scale."""

    @classmethod
    def make(cls, state: PlusState, sample: Batch) -> "Acquaintance":
        """Let all families look at a sample of the task."""
        odds = odds_of(state.familiarities, state.library.opened, sample.state)
        return cls(state.bands.likeness(odds, sample.present), state.bands.known(odds, sample.present))

    def nearest(self, state: PlusState, known: float, strangers: Strangers) -> Int[Array, ""]:
        """The family to which situations are most alike; what nobody knows is like nothing, and goes to the one that learned last."""
        similar = jnp.where(state.library.opened, self.likeness, -jnp.inf).argmax()
        strange = jnp.array(strangers == "newest") & ~self.knowing(state, known).any()
        return jnp.where(strange, state.library.learned_last.argmax(), similar)

    def newest_able(self, state: PlusState, known: float, strangers: Strangers) -> Int[Array, ""]:
        """Of the families that know a task's situations the one that learned last, which has seen most; if there is none, the nearest.

        While a family learns, only tasks most similar to its own are played by it, and those that nobody knows.
        """
        similar = self.nearest(state, known, strangers)
        families = jnp.arange(len(self.knowledge))
        learns = (families == state.library.active) & (state.update < state.updates)
        able = self.knowing(state, known) & (~learns | (families == similar))
        return jnp.where(able.any(), jnp.where(able, state.library.learned_last, -1).argmax(), similar)

    def knowing(self, state: PlusState, known: float) -> Bool[Array, " head"]:
        """Which families know the situations."""
        return state.library.opened & (self.knowledge > known)


def odds_of(familiarities: Familiarity, asked: Bool[Array, " head"], situations: StateTokens) -> Float[Array, "head *batch"]:
    """How familiar situations are to the estimators of the families that are asked, a piece after the other; zero to all others."""
    lead = situations.agent_present.shape[:-1]
    count = math.prod(lead)
    pieces = -(-count // SITUATIONS)
    size = -(-count // pieces)

    def cut(leaf: Array) -> Array:
        rest = leaf.shape[len(lead) :]
        filled = jnp.pad(leaf.reshape(count, *rest), [(0, pieces * size - count), *[(0, 0)] * len(rest)])
        return filled.reshape(pieces, size, *rest)

    cut_up = jax.tree.map(cut, situations)

    def ask(family: tuple[Familiarity, Bool[Array, ""]]) -> Float[Array, "piece situation"]:
        one, asked = family
        return jax.lax.cond(
            asked,
            lambda: jax.lax.map(lambda piece: one.head(one.trunk(piece))[..., 0], cut_up),
            lambda: jnp.zeros((pieces, size)),
        )

    odds = jax.lax.map(ask, (familiarities, asked))
    return odds.reshape(len(asked), -1)[:, :count].reshape(-1, *lead)
