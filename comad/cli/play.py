"""`comad play`: watch one episode."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from comad import envs
from comad.cli.tasks import find_task
from comad.cli.teams import check_team, make_team
from comad.cli.terminal import check_seed, progress, show_lines
from comad.envs.base import Env, HostEnv
from comad.envs.pictures import check_gif_path, paint, save_gif
from comad.envs.rollout import Outcome, episode_keys, rollout
from comad.experts.library import Quality
from comad.types import Actions, Step


@dataclass(frozen=True)
class Play:
    """Record one episode as a GIF."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """A world such as cn-4, or a task of a stream such as BottomLeft."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT.gif")]
    """The GIF to write."""
    random: bool = False
    """Let a team play that acts at random."""
    quality: Quality | None = None
    """Let the shipped team of this quality play."""
    seed: int = 0
    """Decides where the episode starts and what happens in it."""

    def run(self) -> None:
        """Play, paint, and tell how it went."""
        team = check_team(self.random, self.quality)
        check_seed(self.seed)
        check_gif_path(self.out)
        env = envs.make(find_task(self.task).env)
        with progress() as bar:
            playing = bar.add_task("playing", total=1)
            keys = episode_keys(jax.random.key(self.seed), 0, 1)
            played = rollout(env, make_team(env, self.quality), keys, keep_world_and_reward)
            episode = jax.tree.map(lambda leaf: np.asarray(leaf)[0], played)
            bar.advance(playing)
            moments = range(int(episode[0].length) + 1)
            frames = [frame(env, f"{team} team", episode, moment) for moment in bar.track(moments, description="painting")]
        save_gif(frames, self.out)
        outcome, _ = episode
        ending = "success" if outcome.success else "no success"
        show_lines([f"wrote {self.out}: {outcome.length} steps, return {outcome.total:.2f}, {ending}"])


Episode = tuple[Outcome, tuple[Any, np.ndarray]]
"""How it went, and the world and reward of every moment."""


def frame(env: Env[Any] | HostEnv[Any], team: str, episode: Episode, moment: int) -> np.ndarray:
    """The picture of one moment, with the return so far."""
    outcome, (worlds, rewards) = episode
    footer = f"{team}   return {rewards[: moment + 1].sum():.2f}"
    if outcome.success and moment == outcome.length:
        footer += "   success"
    return paint(env.scene(jax.tree.map(lambda leaf: leaf[moment], worlds)), footer=footer)


def keep_world_and_reward(world: Any, step: Step, actions: Actions) -> tuple[Any, Any]:
    """What a picture of a moment needs."""
    return world, step.reward
