"""Let a team play and write down what happens."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from comad.datasets.layout import SHOWN, Values, columns, episode_starts
from comad.datasets.store import write
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Outcome, Player, Record, episode_keys, rollout
from comad.errors import UserError
from comad.types import Actions, Spec, Step

CHUNK = 250
"""Episodes played at once: enough to fill the machine, few enough to show progress and to fit in memory."""
HOST_CHUNK = 50
"""And outside JAX, where a step takes long and nothing is gained by more."""


def collect(
    path: Path, env: Env[Any] | HostEnv[Any], player: Player, quality: str, num_episodes: int, seed: int, provenance: Mapping[str, Any]
) -> Iterator[int]:
    """Record episodes into a dataset, yielding how many are done. The same player and seed give the same content hash."""
    if num_episodes < 1:
        raise UserError(f"a dataset needs at least one episode, not {num_episodes}")
    key = jax.random.key(seed)
    chunks: list[Values] = []
    chunk = HOST_CHUNK if isinstance(env, HostEnv) else CHUNK
    for first in range(0, num_episodes, chunk):
        count = min(chunk, num_episodes - first)
        # Always a full chunk in JAX, so that the last one needs no compilation of its own; outside it every episode costs as much.
        played = count if isinstance(env, HostEnv) else chunk
        outcome, moments = rollout(env, player, episode_keys(key, first, played), _keeper(env.spec))
        chunks.append(_flatten(*jax.tree.map(lambda leaf, count=count: np.asarray(leaf)[:count], (outcome, moments))))
        yield first + count
    # Chunk by chunk taken away, because a large dataset would not fit twice.
    values = {name: np.concatenate([chunk.pop(name) for chunk in chunks]) for name in tuple(chunks[0])}
    values["episode.start"] = episode_starts(values["episode.length"])
    write(path, env.spec, quality, values, {**provenance, "seed": seed})


@lru_cache
def _keeper(spec: Spec) -> Record:
    """What is kept of a moment: the dataset's columns, not the observations where these follow from the state and are far larger."""

    def keep(world: Any, step: Step, actions: Actions) -> dict[str, Any]:
        names = [column.name for column in columns(spec) if column.name != "actions"]
        shown = {name: SHOWN[name](step) for name in names}
        return {**shown, "actions": actions, "terminated": step.terminated}

    return keep


def _flatten(outcome: Outcome, moments: Values) -> Values:
    """Episodes [episode, time, ...] end to end, each cut after its last moment."""
    lengths, shown = np.asarray(outcome.length), moments["reward"]
    kept = np.arange(shown.shape[1])[None] <= lengths[:, None]
    last = (np.arange(len(lengths)), lengths)
    # A world shows the reward with the moment it leads to; a dataset keeps it with the action that earned it.
    reward = np.concatenate([shown[:, 1:], np.zeros_like(shown[:, :1])], axis=1)
    reward[last] = 0.0
    terminated = {"episode.terminated": moments["terminated"][last]}
    values = {name: array[kept] for name, array in {**moments, "reward": reward}.items() if name != "terminated"}
    return {**values, **terminated, "episode.length": lengths.astype(np.int32), "episode.success": np.asarray(outcome.success)}
