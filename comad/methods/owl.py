"""OWL: a head for every task on a shared trunk that is held where the first task left it; the task's number chooses the head."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from comad.errors import UserError
from comad.methods import descent, plain, single
from comad.methods.base import Logs
from comad.methods.plain import Learner, PlainActor, PlainState
from comad.ranges import Size, Strength, ranged
from comad.types import Batch, PRNGKey, Spec, Stream


@dataclass(frozen=True)
@ranged
class Owl:
    """Opens a head for every task on a shared trunk that is held in place; is told which task it plays."""

    learner: Learner = field(default_factory=Learner)
    """The offline learner."""
    anchor: Strength = 500.0
    """How strongly the trunk is held where it was after the first task."""
    heads: Size | None = None
    """Room for so many; by default for one per task of the stream."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> PlainState:
        """Fresh networks with a head per task."""
        needed = len(stream.tasks)
        heads = needed if self.heads is None else self.heads
        if heads < needed:
            raise UserError(
                f"owl opens a head for every task: {stream.name!r} has {needed} tasks, and --heads {heads} leaves no room for all"
            )
        state = self.learner.create(key, specs[0], heads)
        return replace(state, kept=state.weights.actor.trunk)

    def begin(self, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
        """The task's own head; jolt the critics, forget the optimizer's momentum."""
        return self.learner.switch(state, task, task, key)

    def update(self, state: PlainState, batch: Batch, key: PRNGKey) -> tuple[PlainState, Logs]:
        """One gradient step, with the trunk held from the second task on."""
        strength = self.anchor * (state.task > 0)

        def hold(gradient: PlainActor, actor: PlainActor) -> PlainActor:
            return replace(gradient, trunk=descent.pull(gradient.trunk, actor.trunk, state.kept, strength)[0])

        return self.learner.update(state, batch, hold)

    def finish(self, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
        """After the first task, drop the anchor."""
        trunk = jax.tree.map(lambda kept, now: jnp.where(task == 0, now, kept), state.kept, state.weights.actor.trunk)
        return replace(state, kept=trunk)

    def route(self, state: PlainState, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """The task's own head; before it has learned, it knows nothing."""
        return jnp.asarray(task, jnp.int32)

    describe = single.describe
    start = plain.start
    act = plain.act
