"""FS: from scratch. A new actor for every task; what it learns on each is the yardstick of forward transfer."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from comad.methods import plain
from comad.methods.base import Logs
from comad.methods.plain import Learner, PlainState
from comad.types import Batch, PRNGKey, Spec, Stream


@dataclass(frozen=True)
class Fs:
    """Learns every task from scratch with a new actor: the reference of forward transfer."""

    learner: Learner = field(default_factory=Learner)
    """The offline learner."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> PlainState:
        """Fresh networks."""
        return self.learner.create(key, specs[0])

    def begin(self, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
        """A new actor; critics are only jolted, as everywhere."""
        switch_key, actor_key = jax.random.split(key)
        state = self.learner.switch(state, task, jnp.int32(0), switch_key)
        fresh = self.learner.create(actor_key, state.weights.actor.head.spec).weights.actor
        # The first task has one already, the same as every other method's.
        actor = jax.tree.map(lambda old, new: jnp.where(task > 0, new, old), state.weights.actor, fresh)
        return replace(state, weights=replace(state.weights, actor=actor))

    def update(self, state: PlainState, batch: Batch, key: PRNGKey) -> tuple[PlainState, Logs]:
        """One gradient step."""
        return self.learner.update(state, batch)

    def finish(self, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
        """Nothing to keep."""
        return state

    def route(self, state: PlainState, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """The only head."""
        return jnp.int32(0)

    def describe(self, state: PlainState) -> dict[str, Array]:
        """No heads to speak of."""
        return {}

    start = plain.start
    act = plain.act
