"""`comad evaluate`: how well a team does on every task of a stream."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from comad import envs
from comad.cli.tasks import choose
from comad.cli.teams import Source, find_teams
from comad.cli.terminal import progress, show_json, show_lines, show_table
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import episode_keys, rollout
from comad.evaluation import score
from comad.ranges import Count, Seed, ranged
from comad.settings import settings
from comad.types import Metric, Stream, Task

EPISODES_AT_ONCE = 1024
"""More are played in several rounds, so that memory does not grow with their number."""


@dataclass(frozen=True)
@ranged
class Evaluate:
    """Play every task of a stream and show the scores."""

    trained: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="RUN")] = None
    """The folder of a run whose newest team is to play."""
    random: bool = False
    """Let teams play that act at random."""
    quality: str | None = None
    """Let the shipped teams of this quality play."""
    stream: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """A stream; 'comad list' shows them. By default the run's own."""
    greedy: bool = False
    """Let a run's team take its likeliest skills and actions instead of drawing them."""
    tasks: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Tasks or worlds in an order of your own, instead of the stream's, such as: cn-3 cn-5 lbf-bottom."""
    seed: Seed = 0
    """Decides where the episodes start and what happens in them."""
    episodes: Count = 32
    """Episodes per task."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Play, and print one row per task."""
        teams = find_teams(self.trained, self.random, self.quality, self.greedy)
        stream = choose(self.stream, self.tasks) if self.stream or self.tasks is not None or not teams.trained else teams.trained.stream
        worlds = [envs.make(task.env) for task in stream.tasks]
        if not self.json:
            show_lines([line for env in worlds for line in teams.stand_in(env)])
        with progress() as bar:
            playing = bar.add_task("playing", total=self.episodes * len(worlds))
            scores = [
                play(task, env, self, teams, stream.metric, lambda count: bar.advance(playing, count))
                for task, env in zip(stream.tasks, worlds, strict=True)
            ]
        if self.json:
            show_json(as_json(self, stream, scores))
        else:
            show(teams.name, stream, scores)


@dataclass(frozen=True)
class Score:
    """How a team did on one task."""

    task: str
    world: str
    mean_return: float
    success_rate: float
    mean_length: float
    score: float
    """What the stream's metric says, times 100."""


def play(
    task: Task, env: Env[Any] | HostEnv[Any], settings: Evaluate, teams: Source, metric: Metric, advance: Callable[[int], None]
) -> Score:
    """Play all episodes of one task, telling after each round how many they were."""
    key, at_once, player = jax.random.key(settings.seed), min(EPISODES_AT_ONCE, settings.episodes), teams.player(env)
    outcomes = []
    for first in range(0, settings.episodes, at_once):
        # The last round is as large as the others, because another size would be compiled again; what is too much is cut off below.
        outcomes.append(rollout(env, player, episode_keys(key, first, at_once))[0])
        advance(min(at_once, settings.episodes - first))
    whole = jax.tree.map(lambda *parts: np.concatenate(parts)[: settings.episodes].astype(float).mean().item(), *outcomes)
    return Score(
        task.name, env.spec.env, whole.total, whole.success, whole.length, 100 * score(whole.total, whole.success, env.spec, metric)
    )


def as_json(asked: Evaluate, stream: Stream, scores: list[Score]) -> dict[str, Any]:
    """The scores with what it takes to get them again."""
    return {
        "stream": stream.name,
        "metric": stream.metric,
        "seed": asked.seed,
        "episodes": asked.episodes,
        "tasks": [settings(score) for score in scores],
        "mean_score": float(np.mean([score.score for score in scores])),
    }


def show(team: str, stream: Stream, scores: list[Score]) -> None:
    """A table for people, the mean of all tasks below it."""
    rows = [
        (
            score.task,
            score.world,
            f"{score.mean_return:.3f}",
            f"{score.success_rate:.3f}",
            f"{score.mean_length:.1f}",
            f"{score.score:.1f}",
        )
        for score in scores
    ]
    mean = np.mean([score.score for score in scores])
    columns = ("task", "world", "mean return", "success rate", "mean length", f"score (100 x {stream.metric})")
    show_table(f"{team.capitalize()} teams on {stream.name}", columns, [*rows, ("mean", "", "", "", "", f"{mean:.1f}")])
