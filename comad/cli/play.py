"""`comad play`: watch one episode."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from comad import envs
from comad.cli.tasks import find_task
from comad.cli.teams import Source, find_teams, is_run
from comad.cli.terminal import check_seed, progress, show_lines
from comad.envs.base import Env, HostEnv
from comad.envs.pictures import check_gif_path, paint, save_gif
from comad.envs.rollout import Outcome, episode_keys, rollout
from comad.experts.library import Quality
from comad.types import Actions, StateTokens, Step


@dataclass(frozen=True)
class Play:
    """Record one episode as a GIF."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN|TASK")]
    """The folder of a run, or a world such as cn-4, or a task of a stream such as BottomLeft."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT.gif")]
    """The GIF to write."""
    random: bool = False
    """Let a team play that acts at random."""
    quality: Quality | None = None
    """Let the shipped team of this quality play."""
    task: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """What a run's team is to play; by default the newest task it learned."""
    greedy: bool = False
    """Let a run's team take its likeliest skills and actions instead of drawing them."""
    seed: int = 0
    """Decides where the episode starts and what happens in it."""

    def run(self) -> None:
        """Play, paint, and tell how it went."""
        check_seed(self.seed)
        check_gif_path(self.out)
        run = Path(self.what) if is_run(self.what) else None
        teams = find_teams(run, self.random, self.quality, self.greedy)
        newest = teams.trained.stream.tasks[teams.trained.record.scores[-1]["task"]].env if teams.trained else self.what
        env = envs.make(find_task(self.task or newest).env)
        with progress() as bar:
            playing = bar.add_task("playing", total=1)
            keys = episode_keys(jax.random.key(self.seed), 0, 1)
            played = rollout(env, teams.player(env), keys, keep_moment)
            episode = jax.tree.map(lambda leaf: np.asarray(leaf)[0], played)
            bar.advance(playing)
            moments = range(int(episode[0].length) + 1)
            lines = captions(teams, env, episode)
            frames = [frame(env, lines[moment], episode, moment) for moment in bar.track(moments, description="painting")]
        save_gif(frames, self.out)
        outcome, _ = episode
        ending = "success" if outcome.success else "no success"
        show_lines([f"wrote {self.out}: {outcome.length} steps, return {outcome.total:.2f}, {ending}"])


Episode = tuple[Outcome, tuple[Any, np.ndarray, StateTokens]]
"""How it went, and the world, the reward and the situation of every moment."""


def captions(teams: Source, env: Env[Any] | HostEnv[Any], episode: Episode) -> list[str]:
    """What to write below the picture of every moment: who plays, with which head, and how familiar the situation is to each of them."""
    _, (_, rewards, situations) = episode
    scores = teams.familiarity(situations)
    if scores is None:
        return [f"{teams.name} team"] * len(rewards)
    who = f"{teams.name}, head {teams.head(env)}"
    return [f"{who}   familiar to heads: {'  '.join(f'{score:+.1f}' for score in moment)}" for moment in scores.T]


def frame(env: Env[Any] | HostEnv[Any], caption: str, episode: Episode, moment: int) -> np.ndarray:
    """The picture of one moment, with the return so far."""
    outcome, (worlds, rewards, _) = episode
    footer = f"{caption}   return {rewards[: moment + 1].sum():.2f}"
    if outcome.success and moment == outcome.length:
        footer += "   success"
    return paint(env.scene(jax.tree.map(lambda leaf: leaf[moment], worlds)), footer=footer)


def keep_moment(world: Any, step: Step, actions: Actions) -> tuple[Any, Any, StateTokens]:
    """What a picture of a moment needs."""
    return world, step.reward, step.state
