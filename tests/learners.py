"""Methods in small: their states on two tasks of a tiny world."""

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
from recorded import FULL_VIEW, record

from comad import streams
from comad.datasets.batches import gather, upload
from comad.datasets.packing import Packing
from comad.types import ID_BITS, Batch, Continuous, Spec

STREAM = streams.custom(["first", "second"], threshold=1e9)
KEY = jax.random.key(0)
UPDATES = 4
"""Of every task, as methods are told."""


@dataclasses.dataclass(frozen=True)
class Verbs:
    """The verbs of a method as compiled programs, which all tests of a process share."""

    init: Callable[..., Any]
    begin: Callable[..., Any]
    update: Callable[..., Any]
    finish: Callable[..., Any]


@cache
def compiled(method: Any) -> Verbs:
    """Returns the programs of a method; equal settings have the same ones."""
    init = partial(method.init, stream=STREAM, specs=(FULL_VIEW.spec,) * 2, updates=UPDATES)
    return Verbs(*map(jax.jit, (init, method.begin, method.update, method.finish)))


def make(method: Any) -> Any:
    """A fresh state, with four updates per task announced."""
    return compiled(method).init(KEY)


def learn(
    method: Any,
    tasks: int,
    updates: int = UPDATES,
    pause: Callable[[Any], Any] = lambda state: state,
    state: Any = None,
) -> tuple[Any, Any]:
    """Learns tasks from the small batch; returns the state at the end and the last logs.

    Args:
        method: who learns.
        tasks: how many tasks.
        updates: so many for each task.
        pause: what happens to the state in the middle of the last task.
        state: with which to begin; by default a fresh one.
    """
    verbs, batch, logs = compiled(method), small_batch(), {}
    state = make(method) if state is None else state
    for task in range(tasks):
        state = verbs.begin(state, jnp.int32(task), batch, KEY)
        for number in range(updates):
            if (task, number) == (tasks - 1, updates // 2):
                state = pause(state)
            state, logs = verbs.update(state, batch, jax.random.fold_in(KEY, number))
        state = verbs.finish(state, jnp.int32(task), batch, KEY)
    return state, logs


def matrices(tree: Any) -> list[Any]:
    """Returns the matrices of a tree, for vectors begin at zero everywhere."""
    return [leaf for leaf in jax.tree.leaves(tree) if leaf.ndim > 1]


def same(first: Any, second: Any) -> bool:
    """Equal to the last bit."""
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), first, second)))


@cache
def small_batch() -> Batch:
    """Eight episodes of a team that acts at random."""
    with TemporaryDirectory() as folder:
        dataset = record(Path(folder) / "random")
        index = Packing.plan(dataset.starts, dataset.lengths, 8).index(0, 0, 0)
        return jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index)


def vectors() -> tuple[Spec, Batch]:
    """A batch in which actions are pairs of numbers."""
    spec, batch = dataclasses.replace(FULL_VIEW.spec, actions=Continuous(("hip", "ankle"))), small_batch()
    actions = jax.random.uniform(KEY, (*batch.actions.shape, 2), minval=-1.0)
    own = jnp.concatenate([batch.tokens.own[..., : len(spec.own) + ID_BITS], jnp.roll(actions, 1, axis=1)], axis=-1)
    tokens = dataclasses.replace(batch.tokens, own=own)
    return spec, dataclasses.replace(batch, tokens=tokens, actions=actions, available=jnp.zeros((*batch.actions.shape, 0), bool))
