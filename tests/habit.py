"""The smallest method that learns: how often each action was taken. Every state depends on all batches and keys before it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from comad.continual.schedules import DataSchedule, OwnTask
from comad.tokens import mask_unavailable
from comad.types import Actions, Batch, PRNGKey, Spec, Stream, Tokens

State = dict[str, Array]


@dataclass(frozen=True)
class Habit:
    """Habits."""

    rate: float = 0.1
    """How fast habits form."""
    poison: int = -1
    """The update, counted over all tasks, at which a loss is infinite."""

    data: ClassVar[DataSchedule] = OwnTask()

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> State:
        return {"habit": 0.01 * jax.random.normal(key, (specs[0].num_actions,)), "made": jnp.int32(0), "finished": jnp.int32(0)}

    def begin(self, state: State, task: Array, sample: Batch, key: PRNGKey) -> State:
        return {**state, "habit": state["habit"] + 0.01 * jax.random.normal(key, state["habit"].shape)}

    def update(self, state: State, batch: Batch, key: PRNGKey) -> tuple[State, State]:
        taken = jax.nn.one_hot(batch.actions, state["habit"].shape[0]) * batch.step[..., None, None]
        noise = 0.01 * jax.random.normal(key, state["habit"].shape)
        habit = state["habit"] + self.rate * (taken.mean((0, 1, 2)) + noise - state["habit"])
        loss = jnp.where(state["made"] == self.poison, jnp.inf, jnp.square(habit).sum())
        return {**state, "habit": habit, "made": state["made"] + 1}, {"loss": loss}

    def finish(self, state: State, task: Array, sample: Batch, key: PRNGKey) -> State:
        return {**state, "finished": state["finished"] + 1}

    def route(self, state: State, task: Array, sample: Batch) -> Array:
        return state["finished"] * 0

    def start(self, state: State, num_agents: int) -> None:
        return None

    def act(
        self, state: State, memory: None, tokens: Tokens, available: Array, head: Array, greedy: Array, key: PRNGKey
    ) -> tuple[Actions, Any]:
        logits = mask_unavailable(jnp.broadcast_to(state["habit"][None], available.shape), available)
        return jnp.where(greedy, logits.argmax(-1), jax.random.categorical(key, logits)), None

    def describe(self, state: State) -> State:
        return {"finished": state["finished"]}
