"""Finished runs made by hand: everything a training leaves behind, without its updates."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from habit import Habit, State
from jaxtyping import Array
from recorded import record

from comad import checkpoint, envs, streams
from comad.datasets import library
from comad.envs.navigation import Navigation
from comad.runs.run import open_run
from comad.training.lessons import prepare
from comad.training.loop import Budget, create
from comad.training.provenance import identify
from comad.types import Batch, StateTokens

BUDGET = Budget(updates=1, evaluations=1, episodes=1, batch=8)
STREAM = replace(streams.custom(["cn-2-6x6-9t-2r", "cn-3-6x6-9t-2r"], threshold=1e9), updates=BUDGET.updates)
LAST_POSITION = 3
"""Two tasks of one update each, and the moment before each one's first."""


def record_all(folder: Path) -> Path:
    """Data of both tasks."""
    for task in STREAM.tasks:
        env = envs.make(task.env)
        assert isinstance(env, Navigation)
        record(library.place(env.spec.env, "random", folder), env)
    return folder


@dataclass(frozen=True)
class Skilled(Habit):
    """Habits with room for three heads, one opened per task, and skills that can be computed by hand."""

    skill_size: int = 3
    """Features of the own token that make a skill."""

    def route(self, state: State, task: Array, sample: Batch) -> Array:
        return jnp.minimum(task, state["finished"] - 1)

    def recognize(self, state: State, situations: StateTokens) -> Array:
        return state["finished"] - 1

    def familiarity(self, state: State, situations: StateTokens) -> Array:
        """The number of the head plus where the first agent is."""
        heads = jnp.arange(3.0)[(slice(None), *[None] * (situations.agents.ndim - 2))]
        return jnp.where(heads < state["finished"], heads + situations.agents[..., 0, 0][None], -jnp.inf)

    def inferred_skills(self, state: State, batch: Batch, head: Array) -> Array:
        """The own token, larger with every head and every task learned."""
        return batch.tokens.own[..., : self.skill_size] * (1.0 + head + 10.0 * state["finished"])

    def reuse_weights(self, state: State, situations: StateTokens) -> Array:
        """All to the first head, but for what the first agent's place gives to the second; zero to the third, which is never opened."""
        place = situations.agents[..., 0, 0]
        return jnp.stack([1.0 - place, place, jnp.zeros_like(place)])


def make_run(folder: Path, data: Path, name: str, method: Any, tasks: int = 2) -> list[Any]:
    """A run that has ended so many of its tasks; returns its state at each end."""
    lessons = prepare(STREAM, "random", BUDGET.batch, data)
    state, ends = create(method, STREAM, lessons, BUDGET.updates, jax.random.key(0)), []
    begin, finish = jax.jit(method.begin), jax.jit(method.finish)
    played = {"score": [0.5, 0.25]}
    with open_run(folder, identify(name, method, STREAM, "random", lessons, 0, BUDGET)) as run:
        run.resume()
        for lesson in lessons[:tasks]:
            number, sample = jnp.int32(lesson.number), lesson.sample()
            begun = begin(state, number, sample, jax.random.key(1))
            state = finish(begun, number, sample, jax.random.key(2))
            ends.append(state)
            for when, then in (("begin", begun), ("finish", state)):
                told = {name: value.tolist() for name, value in method.describe(then).items()}
                run.append("heads", {"task": lesson.number, "name": lesson.task.name, "when": when, **told})
            for point in (0, 1):
                run.append("scores", {"task": lesson.number, "point": point, "heads": [0, 1], "sampled": played, "greedy": played})
            run.save(2 * lesson.number + 1, partial(checkpoint.save, tree=state), milestone=True)
    return ends
