"""Weights as one vector.

What treats all weights alike (optimizers, slow copies, distances) does so in a few long operations instead of several per array: each of
them is a kernel that takes time to compile and to start.
"""

import itertools
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Tree = TypeVar("Tree")
Vector = Float[Array, " weight"]


def ravel(tree: Tree) -> Vector:
    """All weights end to end, in the order of the tree."""
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


def unravel(vector: Vector, like: Tree) -> Tree:
    """The tree whose weights these are, shaped like another."""
    leaves, structure = jax.tree.flatten(like)
    ends = list(itertools.accumulate(leaf.size for leaf in leaves))
    pieces = [vector[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
    return jax.tree.unflatten(structure, pieces)


def size(tree: Tree) -> int:
    """How many weights there are."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
