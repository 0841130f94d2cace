"""What a method decides about a stream of tasks. The defaults are fine-tuning."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from comad.continual.net import Heads, Logs, Net
from comad.continual.omiga import Critics
from comad.types import Batch, PRNGKey, Stream


class Clock(eqx.Module):
    """Where learning is in a stream."""

    task: Int[Array, ""]
    update: Int[Array, ""]
    """Updates made on this task."""
    updates: int = eqx.field(static=True)
    """Updates for each task."""


class State(eqx.Module):
    """State of a continual learner."""

    heads: Heads
    active: Int[Array, ""]
    """The head that learns."""
    targets: Critics
    optimizer: Any
    clock: Clock
    memory: Any
    """What the strategy keeps of earlier tasks."""

    @property
    def net(self) -> Net:
        """The weights of the active head."""
        return self.heads.net(self.active)


@dataclass(frozen=True)
class Strategy:
    """Decides which head learns, what may not move, what is kept, and which head plays a task.

    The learner calls the verbs in the order in which they stand here. A strategy overrides those
    that it needs. Each returns what replaces the default; none changes anything in place.
    """

    density: ClassVar[bool] = False
    """Whether heads have a density estimator."""

    def capacity(self, stream: Stream) -> int:
        """Returns how many heads there is room for."""
        return 1

    def per_head(self, net: Net) -> tuple[Any, ...]:
        """Returns the parts of a network that every head has of its own; all others are shared."""
        return ()

    def init(self, heads: Heads, stream: Stream) -> Any:
        """Creates the memory."""
        return None

    def begin(self, state: State, sample: Batch, key: PRNGKey) -> State:
        """Chooses the active head for the task that begins, from a sample of its data."""
        return state

    def log_weight(
        self,
        state: State,
        steps: Batch,
        key: PRNGKey,
    ) -> Float[Array, "row time agent"] | None:
        """Calculates what is added to the log-weight of recorded actions, outside the gradient."""
        return None

    def terms(self, net: Net, state: State, batch: Batch, key: PRNGKey) -> tuple[Logs, Logs]:
        """Calculates the terms that are added to the loss, by name, and what to log besides."""
        return {}, {}

    def freeze(self, old: Net, new: Net, state: State) -> Net:
        """Returns new weights, with the old ones where nothing may move.

        It is asked for gradients too, whose old value is zero.
        """
        return new

    def after_update(self, state: State, logs: Logs) -> Any:
        """Returns the memory after an update."""
        return state.memory

    def finish(self, state: State, sample: Batch, key: PRNGKey) -> Any:
        """Returns the memory after a task."""
        return state.memory

    def route(self, state: State, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """Returns the head that plays a task."""
        return jnp.int32(0)

    def describe(self, state: State) -> dict[str, Array]:
        """Returns what is worth knowing of the heads, by name; nothing where no head is chosen."""
        return {}
