"""`comad collect`: make the datasets of whole streams on this machine, from the shipped players."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from comad import envs
from comad.cli.data import show_datasets
from comad.cli.tasks import choose
from comad.cli.teams import stand_in
from comad.cli.terminal import progress, show_lines
from comad.datasets import library as datasets
from comad.datasets.collect import collect
from comad.datasets.store import Dataset, check, open_dataset
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Player
from comad.errors import UserError
from comad.experts import library as experts
from comad.experts.library import QUALITIES, Card
from comad.files import sweep
from comad.ranges import Count, Seed, ranged
from comad.types import Task

EPISODES, LONG_EPISODES = 2000, 200
"""Per dataset; fewer where actions are vectors."""


@dataclass(frozen=True)
@ranged
class Collect:
    """Record a dataset for every task of the streams; those already there are checked and kept."""

    streams: tyro.conf.Positional[tuple[str, ...]] = ()
    """Streams, such as: cn lbf."""
    tasks: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...", aliases=("--task",))] = None
    """Tasks or worlds of your own, instead of streams."""
    quality: tuple[str, ...] = QUALITIES
    """Behavior policies: expert, medium, each trained by itself; -b, -c: further trainings; -related: begun from other tasks' policies."""
    episodes: Count | None = None
    """Episodes per dataset; by default 2000 as in the paper, or 200 where actions are vectors and an episode has a thousand steps."""
    seed: Seed = 0
    """Decides where the episodes start and what happens in them."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where datasets go; by default $COMAD_DATA, or data here."""
    weights: Path = experts.SHIPPED
    """Players' weights of your own, before those that come with the package."""

    def run(self) -> None:
        """Collect what is missing, then show all."""
        show_datasets(self.collect())

    def collect(self) -> list[Dataset]:
        """Collects what is missing while showing how far it is; returns all datasets asked for."""
        # All players first: whoever lacks one should not hear of it after an hour.
        wanted = [(task, quality, env := envs.make(task.env), self.player(env, quality)) for task, quality in self.wanted()]
        show_lines([line for _, quality, env, (_, card) in wanted for line in stand_in(env, card, quality)])
        with progress() as bar:
            bar_task = bar.add_task("recording", total=sum(self.count(task) for task, *_ in wanted))
            paths, done = [], 0
            for task, quality, env, player in wanted:
                bar.update(bar_task, description=f"recording {task.name} {quality}", completed=done)
                paths.append(datasets.place(env.spec.env, quality, self.data))
                for count in self.record(paths[-1], env, quality, *player, self.count(task)):
                    bar.update(bar_task, completed=done + count)
                done += self.count(task)
        return [open_dataset(path) for path in paths]

    def wanted(self) -> list[tuple[Task, str]]:
        """Every task once with every quality, in order."""
        if not self.streams and self.tasks is None:
            raise UserError("nothing to collect: give streams, such as cn lbf, or worlds with --tasks")
        chosen = [choose(stream, None) for stream in self.streams] + ([choose(None, self.tasks)] if self.tasks is not None else [])
        tasks = dict.fromkeys(task for stream in chosen for task in stream.tasks)
        return [(task, quality) for task in tasks for quality in dict.fromkeys(self.quality)]

    def count(self, task: Task) -> int:
        """Episodes of a task."""
        if self.episodes is not None:
            return self.episodes
        return LONG_EPISODES if envs.find(task.env).spec.continuous else EPISODES

    def player(self, env: Env[Any] | HostEnv[Any], quality: str) -> tuple[Player, Card]:
        """Who plays a world, with their card."""
        return experts.get(env, quality, experts.nearest(env, quality, self.weights))

    def record(self, path: Path, env: Env[Any] | HostEnv[Any], quality: str, player: Player, card: Card, episodes: int) -> Iterator[int]:
        """Record one dataset, unless it is there and holds; tells how many episodes are there."""
        origin = provenance(card, env.spec.env)
        sweep(path)
        if self.holds(path, env, origin, episodes):
            yield episodes
            return
        yield from collect(path, env, player, quality, episodes, self.seed, origin)

    def holds(self, path: Path, env: Env[Any] | HostEnv[Any], origin: dict[str, Any], episodes: int) -> bool:
        """Whether the dataset is there, was recorded in just this way, and is undamaged."""
        if not (path / "manifest.json").exists():
            return False
        try:
            dataset = open_dataset(path)
        except UserError:
            return False
        return same_origin(dataset, env, {**origin, "seed": self.seed}, episodes) and check(dataset) == []


def provenance(card: Card, env: str) -> dict[str, Any]:
    """Who recorded a dataset, and in which world the team learned if it was another one."""
    origin = {"kind": "collected", "player": card.algorithm, "weights": card.sha256, "trained": card.command}
    return origin if card.env == env else {**origin, "learned": card.env}


def same_origin(dataset: Dataset, env: Env[Any] | HostEnv[Any], origin: dict[str, Any], episodes: int) -> bool:
    """Whether recording again would give the same content."""
    return dataset.spec == env.spec and dict(dataset.provenance) == origin and dataset.recorded.episodes == episodes
