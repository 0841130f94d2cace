"""Small datasets recorded on the spot by random teams."""

from pathlib import Path
from typing import Any

from comad.datasets.collect import collect
from comad.datasets.store import Dataset, open_dataset, write
from comad.envs.base import Env, HostEnv
from comad.envs.navigation import Navigation
from comad.envs.rollout import Player, RandomPlayer

FULL_VIEW = Navigation(2, 6, limit=9)
SHORT_SIGHT = Navigation(3, 8, limit=7, sight=3)


def record(
    path: Path, env: Env[Any] | HostEnv[Any] = FULL_VIEW, episodes: int = 40, seed: int = 0, player: Player | None = None
) -> Dataset:
    """A dataset of random play, or of somebody else's."""
    for _ in collect(path, env, player or RandomPlayer(env.spec), "random", episodes, seed, {"kind": "test"}):
        pass
    return open_dataset(path)


def write_again(dataset: Dataset, path: Path) -> Dataset:
    """What `collect` does once all episodes are played."""
    values = {name: dataset.read(name) for name in dataset.arrays}
    return write(path, dataset.spec, dataset.quality, values, dict(dataset.provenance))
