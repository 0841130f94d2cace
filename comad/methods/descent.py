"""One gradient step, shared by all methods: groups of weights whose gradients are clipped each by itself, then moved by AdamW.

What is done to every array is left to one small operation per array: the compiler makes one kernel for all arrays of a shape. Cutting
arrays out of one long vector would take a kernel each. Lengths, though, are measured on one vector.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from comad.networks.flat import ravel

Optimizer = Any
"""What AdamW remembers of all weights."""
Weights = TypeVar("Weights")


def fresh(weights: Any) -> Optimizer:
    """An optimizer without momentum."""
    return optax.adamw(0.0).init(weights)


def pull(gradient: Weights, weights: Weights, anchor: Weights, strength: Float[Array, ""]) -> tuple[Weights, Float[Array, ""]]:
    """Add the gradient of ``strength * |weights - anchor|^2`` (Eq. 8); also the squared distance itself."""
    away = jax.tree.map(jnp.subtract, weights, anchor)
    return jax.tree.map(lambda slope, leaf: slope + 2.0 * strength * leaf, gradient, away), jnp.square(ravel(away)).sum()


def clip(gradient: Weights, largest: float) -> tuple[Weights, Float[Array, ""]]:
    """A gradient no longer than allowed, and how long it was."""
    norm = jnp.sqrt(jnp.square(ravel(gradient)).sum())
    return optax.tree.scale(largest / jnp.maximum(norm, largest), gradient), norm


def descend(
    weights: Weights, gradient: Weights, optimizer: Optimizer, learning_rate: float, weight_decay: float
) -> tuple[Weights, Optimizer]:
    """One step of AdamW."""
    change, optimizer = optax.adamw(learning_rate, weight_decay=weight_decay).update(gradient, optimizer, weights)
    return optax.apply_updates(weights, change), optimizer
