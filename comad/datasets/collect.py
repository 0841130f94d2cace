"""Let a team play and write down what happens."""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import jax
import numpy as np

from comad.datasets.layout import Values, columns, episode_starts
from comad.datasets.store import write
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Outcome, Player, episode_keys, rollout
from comad.errors import UserError
from comad.types import Actions, Spec, Step

CHUNK = 250
"""Episodes played at once: enough to fill the machine, few enough to show progress and to fit in memory."""


def collect(
    path: Path, env: Env[Any] | HostEnv[Any], player: Player, quality: str, num_episodes: int, seed: int, provenance: Mapping[str, Any]
) -> Iterator[int]:
    """Record episodes into a dataset, yielding how many are done. The same player and seed give the same content hash."""
    if num_episodes < 1:
        raise UserError(f"a dataset needs at least one episode, not {num_episodes}")
    key = jax.random.key(seed)
    chunks: list[Values] = []
    for first in range(0, num_episodes, CHUNK):
        count = min(CHUNK, num_episodes - first)
        # Always a full chunk, so that the last one needs no compilation of its own.
        outcome, moments = rollout(env, player, episode_keys(key, first, CHUNK), _keep_step)
        chunks.append(_flatten(env.spec, *jax.tree.map(lambda leaf, count=count: np.asarray(leaf)[:count], (outcome, moments))))
        yield first + count
    values = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    values["episode.start"] = episode_starts(values["episode.length"])
    write(path, env.spec, quality, values, {**provenance, "seed": seed})


def _keep_step(world: Any, step: Step, actions: Actions) -> tuple[Step, Actions]:
    return step, actions


def _flatten(spec: Spec, outcome: Outcome, moments: tuple[Step, np.ndarray]) -> Values:
    """Episodes [episode, time, ...] end to end, each cut after its last moment."""
    step, actions = moments
    lengths = np.asarray(outcome.length)
    kept = np.arange(actions.shape[1])[None] <= lengths[:, None]
    last = (np.arange(len(lengths)), lengths)
    # A world shows the reward with the moment it leads to; a dataset keeps it with the action that earned it.
    reward = np.concatenate([step.reward[:, 1:], np.zeros_like(step.reward[:, :1])], axis=1)
    reward[last] = 0.0
    values = {"actions": actions[kept], "reward": reward[kept]}
    for column in columns(spec):
        if column.name not in values:
            values[column.name] = attrgetter(column.name)(step)[kept]
    return values | {
        "episode.length": lengths.astype(np.int32),
        "episode.success": np.asarray(outcome.success),
        "episode.terminated": np.asarray(step.terminated)[last],
    }
