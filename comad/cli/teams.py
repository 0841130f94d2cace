"""Who is to play: teams as people name them on the command line."""

from typing import Any

from comad import envs
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Player, RandomPlayer
from comad.errors import UserError
from comad.experts import library
from comad.experts.library import Quality


def check_team(random: bool, quality: Quality | None) -> str:
    """The team's name; exactly one must be asked for."""
    if random == (quality is not None):
        raise UserError("who is to play? give either --random, or --quality expert, or --quality medium")
    return quality or "random"


def make_team(env: Env[Any] | HostEnv[Any], quality: Quality | None) -> Player:
    """The shipped team of a quality, or one that acts at random."""
    return library.get(playable(env.spec.env), quality)[0] if quality else RandomPlayer(env.spec)


def playable(name: str) -> Env[Any]:
    """A world in which shipped teams can be trained and can play."""
    env = envs.make(name)
    if isinstance(env, HostEnv):
        raise UserError(f"{name} runs outside JAX, where these teams cannot play")
    return env
