"""FS: from scratch. A new actor for every task; what it learns on each is the yardstick of forward transfer."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from comad.methods import plain, single
from comad.methods.plain import Learner, PlainState
from comad.ranges import ranged
from comad.types import Batch, PRNGKey


@dataclass(frozen=True)
@ranged
class Fs:
    """Learns every task from scratch with a new actor: the reference of forward transfer."""

    learner: Learner = field(default_factory=Learner)
    """The offline learner."""

    def begin(self, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
        """A new actor; critics are only jolted, as everywhere."""
        switch_key, actor_key = jax.random.split(key)
        state = self.learner.switch(state, task, jnp.int32(0), switch_key)
        fresh = self.learner.create(actor_key, state.weights.actor.head.spec).weights.actor
        # The first task has one already, the same as every other method's.
        actor = jax.tree.map(lambda old, new: jnp.where(task > 0, new, old), state.weights.actor, fresh)
        return replace(state, weights=replace(state.weights, actor=actor))

    init = plain.init
    update = plain.update
    finish = single.finish
    route = single.route
    describe = single.describe
    start = plain.start
    act = plain.act
