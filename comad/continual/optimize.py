"""One gradient step: groups of weights whose gradients are clipped by themselves, moved by AdamW.

What is done to every array is left to one small operation per array: the compiler makes one kernel
for all arrays of a shape. Norms, though, are measured on one vector.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from comad.networks.flat import ravel

Tree = TypeVar("Tree")
Optimizer = Any
"""The state of AdamW."""


def fresh(weights: Any) -> Optimizer:
    """Returns an optimizer without momentum."""
    return optax.adamw(0.0).init(weights)


def zeros_like(tree: Tree) -> Tree:
    """Returns zeros in the shape of a tree."""
    return jax.tree.map(jnp.zeros_like, tree)


def squared_norm(tree: Any) -> Float[Array, ""]:
    """Calculates the squared norm of all arrays together."""
    return jnp.square(ravel(tree)).sum()


def squared_distance(one: Tree, other: Tree) -> Float[Array, ""]:
    """Calculates the squared distance of two trees."""
    return squared_norm(jax.tree.map(jnp.subtract, one, other))


def clip(gradient: Tree, groups: Sequence[str], largest: float) -> tuple[Tree, dict[str, Array]]:
    """Clips the gradient of each group by its norm; returns it with the norms, by name."""
    clipped, norms = {}, {}
    for name in groups:
        if (group := getattr(gradient, name)) is not None:
            norm = jnp.sqrt(squared_norm(group))
            clipped[name] = optax.tree.scale(largest / jnp.maximum(norm, largest), group)
            norms[f"gradient_{name}"] = norm
    return replace(gradient, **clipped), norms  # type: ignore[type-var]


def adamw(
    weights: Tree,
    gradient: Tree,
    optimizer: Optimizer,
    learning_rate: float,
    weight_decay: float,
) -> tuple[Tree, Optimizer]:
    """Makes one step of AdamW."""
    rule = optax.adamw(learning_rate, weight_decay=weight_decay)
    change, optimizer = rule.update(gradient, optimizer, weights)
    return optax.apply_updates(weights, change), optimizer
