"""No two draws of a run, or of two runs, come from one key."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reliability import tried

from comad.datasets.packing import Packing
from comad.envs.rollout import _named, episode_keys
from comad.evaluation import evaluation_key
from comad.training.loop import creation_key, task_keys

SEEDS, TASKS, UPDATES, EVALUATIONS, EPISODES, USES = (0, 1, 2**32 - 1), 4, 40, 8, 8, 6


@jax.jit
def of_updates(key: Any) -> Any:
    updates = jax.vmap(lambda number: jax.random.fold_in(key, number))(np.arange(UPDATES))
    return jnp.concatenate([updates, jax.vmap(jax.random.split)(updates).ravel()])  # methods split an update's key


@jax.jit
def of_episodes(key: Any) -> Any:
    episodes = episode_keys(key, 0, EPISODES)
    return jnp.concatenate([key[None], episodes, *(_named(episodes, use) for use in range(USES))])


def keys_of_a_run(seed: int) -> Iterator[Any]:
    """Every key from which a small run draws, and those that these are made of."""
    yield creation_key(seed, TASKS)[None]
    for task in range(TASKS):
        begin, learn, finish = task_keys(seed, task)
        yield from (begin[None], learn[None], finish[None])
        yield of_updates(learn)
        for evaluation in range(EVALUATIONS):
            yield of_episodes(evaluation_key(seed, task, evaluation))


@pytest.mark.promise("own-keys")
def test_no_key_is_used_twice() -> None:
    words = [np.asarray(jax.random.key_data(keys)) for seed in SEEDS for keys in keys_of_a_run(seed)]
    found = np.concatenate(words)
    each = 1 + TASKS * (3 + 3 * UPDATES + EVALUATIONS * (1 + EPISODES * (1 + USES)))
    assert len(found) == len(SEEDS) * each
    assert len(np.unique(found, axis=0)) == len(found)
    tried(len(found))


@pytest.mark.promise("own-keys")
def test_no_two_epochs_have_one_order() -> None:
    packing = Packing.plan(np.arange(64) * 3, np.full(64, 2, np.int32), 8)
    orders = {
        packing.index(seed, task, epoch * packing.batches_per_epoch).moment.tobytes()
        for seed, task, epoch in itertools.product((*range(8), 2**32 - 1), range(TASKS), range(8))
    }
    assert len(orders) == 9 * TASKS * 8
    tried(len(orders))
