"""Which recorded actions to follow, in numbers without units."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from comad.continual.omiga import acting, bounded, masked_mean
from comad.types import Batch

Doubted = Literal["episodes", "actions"]
"""What a policy is drawn towards chance in."""

SHARPEST = 20.0
"""Most that a standard deviation of outcomes may count."""

FEWEST = 16
"""Beginnings of episodes in a sample by which its episodes can be counted."""


class Preference(eqx.Module):
    """How much rather to follow episodes of a task that ended well."""

    sharpness: Float[Array, ""]
    """Per standard deviation of outcomes."""
    mean: Float[Array, ""]
    """Of the weights of all the task's actions, by which weights are divided. A single batch may well hold bad episodes only."""

    @classmethod
    def none(cls) -> "Preference":
        """All alike."""
        return cls(jnp.float32(0.0), jnp.float32(1.0))

    @classmethod
    def of(cls, sample: Batch, effective: float) -> "Preference":
        """As sharp as leaves a share of a task's episodes effective."""
        # Long episodes come in pieces, of which few are beginnings; they are of about one length, so that steps can stand for them.
        counted = jnp.where(sample.first.sum() >= FEWEST, sample.first, sample.step)
        sharpness = sharpest(sample.outcome, counted, effective)
        return cls(sharpness, masked_mean(jnp.exp(bounded(sharpness * sample.outcome)), sample.step))


def sharpest(outcome: Float[Array, "row time"], first: Bool[Array, "row time"], effective: float) -> Float[Array, ""]:
    """How sharply episodes can be told by their outcome such that their effective number is still a share of all of them."""

    def leaves_enough(sharpness: Float[Array, ""]) -> Bool[Array, ""]:
        weight = jnp.where(first, jnp.exp(bounded(sharpness * outcome)), 0.0)
        return jnp.square(weight.sum()) >= effective * first.sum() * jnp.square(weight).sum()

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (bounds[0] + bounds[1]) / 2
        enough = leaves_enough(middle)
        return jnp.where(enough, middle, bounds[0]), jnp.where(enough, bounds[1], middle)

    return jax.lax.fori_loop(0, 30, halve, (jnp.float32(0.0), jnp.float32(SHARPEST)))[0]


def weigh(exponent: Float[Array, "row time agent"], preference: Preference, batch: Batch) -> Float[Array, "row time agent"]:
    """Weights of recorded actions, of about mean one over the task, so that nothing has to be tuned to their size."""
    # Bounded apart: outcomes alone may reach the bound, and there advantages and guidance must still tell.
    weight = jnp.exp(bounded(exponent) + bounded(preference.sharpness * batch.outcome)[..., None])
    return jnp.where(acting(batch), weight / preference.mean, 0.0)


def followed(preference: Preference, batch: Batch) -> Float[Array, "row time agent"]:
    """Weights of recorded actions by how their episodes ended alone."""
    return weigh(jnp.zeros(batch.state.agent_present.shape), preference, batch)


def merit(said: Float[Array, "head row time agent"], weight: Float[Array, "row time agent"], batch: Batch) -> Float[Array, " head"]:
    """Lambda: how much better than chance a family explains the actions that count; 1 perfectly, 0 no better."""
    fit = jax.vmap(lambda one: masked_mean(weight * one, acting(batch)))(said)
    return jnp.clip(1.0 - fit / jnp.minimum(chance(weight, batch), -1e-6), 0.0, 1.0)


def chance(weight: Float[Array, "row time agent"], batch: Batch) -> Float[Array, ""]:
    """How well whoever takes any action alike explains those that count."""
    choices = 2.0 ** batch.actions.shape[-1] if batch.continuous else jnp.maximum(batch.available.sum(-1), 1)
    return masked_mean(-jnp.log(choices) * weight, acting(batch))
