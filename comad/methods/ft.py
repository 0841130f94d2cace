"""FT: fine-tuning. One network learns task after task, with nothing against forgetting."""

from dataclasses import dataclass, field

import jax.numpy as jnp
from jaxtyping import Array, Int

from comad.methods import plain
from comad.methods.base import Logs
from comad.methods.plain import Learner, PlainState
from comad.types import Batch, PRNGKey, Spec, Stream


@dataclass(frozen=True)
class Ft:
    """Fine-tunes one network on task after task, with nothing against forgetting."""

    learner: Learner = field(default_factory=Learner)
    """The offline learner."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> PlainState:
        """Fresh networks."""
        return self.learner.create(key, specs[0])

    def begin(self, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
        """Jolt the critics, forget the optimizer's momentum."""
        return self.learner.switch(state, task, jnp.int32(0), key)

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
