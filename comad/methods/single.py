"""Verbs of methods that have one head and keep nothing of a task that ends."""

from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Int

from comad.types import Batch, PRNGKey

State = TypeVar("State")


def finish(method: Any, state: State, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> State:
    """Keep nothing."""
    return state


def route(method: Any, state: Any, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
    """The only head."""
    return jnp.int32(0)


def describe(method: Any, state: Any) -> dict[str, Array]:
    """No choice of heads to speak of."""
    return {}
