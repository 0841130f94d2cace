"""Many heads of one shape on a leading axis, at fixed capacity: opening one changes no shape and compiles nothing anew."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jaxtyping import Array, Int

from comad.networks.layers import Draws, count_draws
from comad.types import PRNGKey

Head = TypeVar("Head")


def create_heads(make: Callable[[Draws], Head], key: PRNGKey, capacity: int) -> Head:
    """All heads that will ever be used, each with fresh weights of its own."""
    count = count_draws(make)
    # One long row for all heads: the generator takes seconds to compile for other shapes.
    numbers = jax.random.uniform(key, (capacity * count,), minval=-1.0).reshape(capacity, count)
    return jax.vmap(lambda row: make(Draws(row)))(numbers)


def pick(heads: Head, head: Int[Array, ""] | int) -> Head:
    """One head."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, head, keepdims=False), heads)


def put(heads: Head, head: Int[Array, ""] | int, values: Head) -> Head:
    """The heads with one of them replaced; the others keep every bit."""
    return jax.tree.map(lambda leaf, value: jax.lax.dynamic_update_index_in_dim(leaf, value, head, 0), heads, values)


def each(heads: Head, function: Callable[[Head], Any]) -> Any:
    """What a function makes of every head, on a leading axis."""
    return jax.vmap(function)(heads)
