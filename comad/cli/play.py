"""`comad play`: watch one episode."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from comad import envs
from comad.cli.tasks import find_task
from comad.cli.teams import Source, find_teams, is_run
from comad.cli.terminal import followed, progress, show_lines
from comad.envs.base import Env, HostEnv
from comad.envs.episodes import Episode, watch, watch_first_success
from comad.envs.pictures import check_gif_path, paint, save_gif
from comad.envs.rollout import Player
from comad.errors import UserError
from comad.ranges import LARGEST_SEED, Seed, ranged

MOST_TRIED = 100
"""Episodes that are played in search of a won one."""


@dataclass(frozen=True)
@ranged
class Play:
    """Record one episode as a GIF."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN|TASK")]
    """The folder of a run, or a world such as cn-4, or a task of a stream such as BottomLeft."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT.gif")]
    """The GIF to write."""
    random: bool = False
    """Let a team play that acts at random."""
    quality: str | None = None
    """Let the shipped team of this quality play."""
    task: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """What a run's team is to play; by default the newest task it learned."""
    greedy: bool = False
    """Let a run's team take its likeliest skills and actions instead of drawing them."""
    seed: Seed = 0
    """Decides where the episode starts and what happens in it."""
    won: bool = False
    """Play episodes of this seed and the next, at most 100, until one is won; record that one."""

    def run(self) -> None:
        """Play, paint, and tell how it went."""
        check_gif_path(self.out)
        run = Path(self.what) if is_run(self.what) else None
        teams = find_teams(run, self.random, self.quality, self.greedy)
        newest = teams.trained.stream.tasks[teams.trained.record.scores[-1]["task"]].env if teams.trained else self.what
        env = envs.make(find_task(self.task or newest, teams.trained.stream.tasks if teams.trained else ()).env)
        show_lines(teams.stand_in(env))
        with progress() as bar:
            playing = bar.add_task("playing", total=1)
            seed, episode = self.play(env, teams.player(env))
            bar.advance(playing)
        scenes, footers = episode.scenes, captions(teams, episode)
        painted = followed(list(zip(scenes, footers, strict=True)), "painting")
        frames = [paint(scene, footer=footer) for scene, footer in painted]
        save_gif(frames, self.out, scenes[0].seconds)
        ending = "success" if episode.success else "no success"
        show_lines([f"wrote {self.out}: {episode.length} steps, return {episode.total:.2f}, {ending}"])
        if self.won:
            played = seed - self.seed + 1
            show_lines([f"chosen: seed {seed}, the first won episode of {played} played"])

    def play(self, env: Env[Any] | HostEnv[Any], player: Player) -> tuple[int, Episode]:
        """Returns the episode to show and its seed."""
        if not self.won:
            return self.seed, watch(env, player, self.seed)
        seeds = range(self.seed, min(self.seed + MOST_TRIED, LARGEST_SEED + 1))
        if found := watch_first_success(env, player, seeds):
            return found
        lost = f"none of {len(seeds)} episodes on {env.spec.env} from --seed {self.seed} on was won"
        raise UserError(f"{lost}; try another seed, or no --won")


def captions(teams: Source, episode: Episode) -> list[str]:
    """What to write below the picture of every moment: who plays, with which head, how familiar the situation is to each, the return."""
    who, scores = f"{teams.name} team", teams.familiarity(episode.situations)
    lines = [who] * len(episode.returns)
    if scores is not None:
        who = f"{teams.name}, head {teams.head(episode.env)}"
        familiar = ["  ".join(f"{score:+.1f}" for score in moment) for moment in scores.T]
        lines = [f"{who}   familiar to heads: {text}" for text in familiar[: len(episode.returns)]]
    lines = [f"{line}   return {total:.2f}" for line, total in zip(lines, episode.returns, strict=True)]
    return [*lines[:-1], f"{lines[-1]}   success" if episode.success else lines[-1]]
