"""Many heads of one shape on a leading axis, at fixed capacity: opening one changes no shape and compiles nothing anew."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
from jaxtyping import Array, Int

from comad.networks.layers import Draws, initialize
from comad.types import PRNGKey

Head = TypeVar("Head")


def create_heads(make: Callable[[Draws], Head], key: PRNGKey, capacity: int) -> Head:
    """All heads that will ever be used, each with fresh weights of its own."""
    return jax.vmap(partial(initialize, make))(jax.random.split(key, capacity))


def pick(heads: Head, head: Int[Array, ""] | int) -> Head:
    """One head."""
    return jax.tree.map(lambda leaf: leaf[head], heads)


def put(heads: Head, head: Int[Array, ""] | int, values: Head) -> Head:
    """The heads with one of them replaced; the others keep every bit."""
    return jax.tree.map(lambda leaf, value: leaf.at[head].set(value), heads, values)


def each(heads: Head, function: Callable[[Head], Any]) -> Any:
    """What a function makes of every head, on a leading axis."""
    return jax.vmap(function)(heads)
