"""OWL: a head for each task on a shared trunk that stays where the first task left it."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from comad.continual.net import Heads, Logs, Net
from comad.continual.optimize import squared_distance
from comad.continual.strategy import State, Strategy
from comad.errors import UserError
from comad.networks.policy import Trunk
from comad.ranges import Size, Strength, ranged
from comad.types import Batch, PRNGKey, Stream


@dataclass(frozen=True)
@ranged
class Owl(Strategy):
    """Learns a head for each task on a shared, anchored trunk; is told which task it plays."""

    anchor: Strength = 500.0
    """Strength with which the trunk is anchored where the first task left it."""
    heads: Size | None = None
    """Room for so many heads; by default one for each task of the stream."""

    def capacity(self, stream: Stream) -> int:
        """Returns room for a head for each task."""
        needed = len(stream.tasks)
        heads = needed if self.heads is None else self.heads
        if heads < needed:
            raise UserError(
                f"owl opens a head for every task: {stream.name!r} has {needed} tasks, and --heads {heads} leaves no room for all"
            )
        return heads

    def per_head(self, net: Net) -> tuple[Any, ...]:
        """Returns the actor's head."""
        return (net.actor.head,)

    def init(self, heads: Heads, stream: Stream) -> Trunk:
        """Returns the trunk, which is the anchor."""
        return heads.net(0).actor.trunk

    def begin(self, state: State, sample: Batch, key: PRNGKey) -> State:
        """Goes on to the task's own head."""
        return replace(state, active=state.clock.task)

    def terms(self, net: Net, state: State, batch: Batch, key: PRNGKey) -> tuple[Logs, Logs]:
        """Calculates the anchor's loss from the second task on."""
        strength = self.anchor * (state.clock.task > 0)
        return {"anchor_loss": strength * squared_distance(net.actor.trunk, state.memory)}, {}

    def finish(self, state: State, sample: Batch, key: PRNGKey) -> Trunk:
        """Returns the trunk as the first task left it."""
        first = state.clock.task == 0
        trunk = state.net.actor.trunk
        return jax.tree.map(lambda old, new: jnp.where(first, new, old), state.memory, trunk)

    def route(self, state: State, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """Returns the task's own head."""
        return jnp.asarray(task, jnp.int32)
