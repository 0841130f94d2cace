"""One episode, kept moment by moment: what pictures and replays are made of."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Player, episode_keys, rollout
from comad.envs.scene import Scene
from comad.types import Actions, StateTokens, Step


@dataclass(frozen=True)
class Episode:
    """How it went, and its moments 0..length. Arrays go on to the world's limit; what lies beyond the length has no meaning."""

    env: Env[Any] | HostEnv[Any]
    success: bool
    total: float
    length: int
    worlds: Any
    rewards: np.ndarray
    situations: StateTokens

    @property
    def scenes(self) -> list[Scene]:
        """What to draw of every moment."""
        return [self.env.scene(jax.tree.map(lambda leaf, at=moment: leaf[at], self.worlds)) for moment in range(self.length + 1)]

    @property
    def returns(self) -> np.ndarray:
        """The sum of rewards up to every moment."""
        return np.cumsum(self.rewards[: self.length + 1], dtype=float)


def watch(env: Env[Any] | HostEnv[Any], player: Player, seed: int) -> Episode:
    """Play the first episode of a seed, keeping all of it."""
    played = rollout(env, player, episode_keys(jax.random.key(seed), 0, 1), keep_moment)
    outcome, (worlds, rewards, situations) = jax.tree.map(lambda leaf: np.asarray(leaf)[0], played)
    return Episode(env, bool(outcome.success), float(outcome.total), int(outcome.length), worlds, rewards, situations)


def watch_first_success(
    env: Env[Any] | HostEnv[Any],
    player: Player,
    seeds: Iterable[int],
) -> tuple[int, Episode] | None:
    """Plays the first episode of each seed until one succeeds; returns that seed and episode."""
    episodes = ((seed, watch(env, player, seed)) for seed in seeds)
    return next(((seed, episode) for seed, episode in episodes if episode.success), None)


def keep_moment(world: Any, step: Step, actions: Actions) -> tuple[Any, Any, StateTokens]:
    """What a picture of a moment needs."""
    return world, step.reward, step.state
