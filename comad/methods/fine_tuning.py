"""Fine-tuning and its relatives that keep nothing but actors: FT, FS, FT with snapshots."""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int

from comad.continual.net import Net
from comad.continual.strategy import State, Strategy
from comad.types import Batch, PRNGKey, Stream


@dataclass(frozen=True)
class FineTuning(Strategy):
    """Fine-tunes one network on task after task, with nothing against forgetting."""


@dataclass(frozen=True)
class ActorPerTask(Strategy):
    """Has an actor for each task."""

    def capacity(self, stream: Stream) -> int:
        """Returns room for an actor for each task."""
        return len(stream.tasks)

    def per_head(self, net: Net) -> tuple[Any, ...]:
        """Returns the whole actor."""
        return (net.actor,)


@dataclass(frozen=True)
class FromScratch(ActorPerTask):
    """Learns every task from scratch with a new actor: the reference of forward transfer."""

    def begin(self, state: State, sample: Batch, key: PRNGKey) -> State:
        """Goes on to the next actor."""
        return replace(state, active=state.clock.task)

    def route(self, state: State, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """Returns the newest actor, which plays everything."""
        return state.active


@dataclass(frozen=True)
class Snapshots(ActorPerTask):
    """Fine-tunes one network and keeps a copy of its actor for each task; is told the task."""

    def begin(self, state: State, sample: Batch, key: PRNGKey) -> State:
        """Goes on with a copy of the actor of the task before."""
        task = state.clock.task
        before = state.heads.net(jnp.maximum(task - 1, 0))
        return replace(state, active=task, heads=state.heads.write(task, before))

    def route(self, state: State, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """Returns the task's own actor; for tasks to come, the newest."""
        return jnp.minimum(task, state.active)
