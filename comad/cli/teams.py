"""Who is to play: teams as people name them on the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from comad.cli.terminal import show_lines
from comad.continual.method import Recognizes
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Player, RandomPlayer, episode_keys
from comad.errors import UserError
from comad.evaluation import Team
from comad.experts import library
from comad.experts.library import Card
from comad.policy import Trained, restore
from comad.runs.folder import SETTINGS
from comad.tokens import check_alike
from comad.types import StateTokens

RECOGNIZED_FROM = 64
"""Starts of episodes by which the head for a task that was never learned is chosen."""


@dataclass(frozen=True)
class Source:
    """Teams of one origin, for whatever world."""

    quality: str | None = None
    trained: Trained | None = None
    greedy: bool = False

    @property
    def name(self) -> str:
        """What to call them."""
        return self.trained.record.settings["identity"]["method"] if self.trained else self.quality or "random"

    def player(self, env: Env[Any] | HostEnv[Any]) -> Player:
        """The team for a world."""
        if self.trained:
            check_alike([self.trained.worlds[0].spec, env.spec])
            return Team(self.trained.state, jnp.int32(self.head(env)), jnp.array(self.greedy), self.trained.method)
        return library.get(env, self.quality)[0] if self.quality else RandomPlayer(env.spec)

    def stand_in(self, env: Env[Any] | HostEnv[Any]) -> list[str]:
        """What to say if the team for a world is a shipped one that learned in another."""
        return stand_in(env, library.get(env, self.quality)[1], self.quality) if self.quality else []

    def head(self, env: Env[Any] | HostEnv[Any]) -> int:
        """The head for a world: the one that played it last, or, if it was never learned, the one to which its starts are most familiar."""
        assert self.trained is not None
        if env.spec.env in (known.spec.env for known in self.trained.worlds):
            return self.trained.heads[self.trained.number(env.spec.env)]
        if not isinstance(self.trained.method, Recognizes) or isinstance(env, HostEnv):
            return self.trained.heads[self.trained.newest]
        _, starts = jax.vmap(env.reset)(episode_keys(jax.random.key(0), 0, RECOGNIZED_FROM))
        return int(self.trained.method.recognize(self.trained.state, starts.state))

    def familiarity(self, situations: StateTokens) -> np.ndarray | None:
        """How familiar situations are to every opened head ``[head, moment]``, if the method can tell."""
        if self.trained is None or not isinstance(self.trained.method, Recognizes):
            return None
        scores = np.asarray(jax.jit(self.trained.method.familiarity)(self.trained.state, situations))
        return scores[np.isfinite(scores).all(-1)]


def find_teams(run: Path | None, random: bool, quality: str | None, greedy: bool = False) -> Source:
    """The teams that were asked for; exactly one origin must be."""
    if (run is not None) + random + (quality is not None) != 1:
        raise UserError("who is to play? give either the folder of a run, or --random, or --quality expert, or --quality medium")
    if run is None and greedy:
        raise UserError("--greedy is for trained teams: give the folder of a run")
    trained = restore(run) if run else None
    show_lines(trained.warnings if trained else ())
    return Source(quality, trained, greedy)


def stand_in(env: Env[Any] | HostEnv[Any], card: Card, quality: str) -> list[str]:
    """What to say if a team plays a world in which it did not learn, or is a related one where a separate one was asked for."""
    there = env.spec.env
    related = card.quality != quality
    if card.env != there:
        return [f"{there}, {quality}: no team learned there, so that of {card.env} plays{f', {card.quality}' if related else ''}"]
    return [f"{there}, {quality}: no policy was trained by itself there yet, so {card.quality} plays"] if related else []


def is_run(name: str) -> bool:
    """Whether a name is the folder of a run."""
    return (Path(name) / SETTINGS).is_file()
