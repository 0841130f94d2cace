"""`comad experts`: train the players that record data, and show those that come with the package."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from comad import envs
from comad.cli.curves import Curves
from comad.cli.relatedness import Compare
from comad.cli.tasks import choose
from comad.cli.terminal import progress, show_lines, show_table
from comad.envs.base import Env, HostEnv
from comad.errors import UserError
from comad.experts import library, training
from comad.experts.library import Card
from comad.experts.recipes import Recipe, recipe
from comad.machine import use_cores
from comad.ranges import Seed, Size, Steps, ranged
from comad.settings import settings
from comad.types import Spec, Task


@dataclass(frozen=True)
@ranged
class Train:
    """Train an expert and a medium team for every task of a stream; started again, it goes on from where it was."""

    stream: tyro.conf.Positional[str | None] = None
    """A stream; 'comad list' shows them."""
    tasks: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...", aliases=("--task",))] = None
    """Only these tasks, or worlds of your own."""
    steps: Steps | None = None
    """Environment steps per task, instead of the recipe's."""
    trainer: Literal["qmix", "sac", "hatd3"] | None = None
    """How to learn, instead of the recipe's: qmix where actions are numbered, sac or hatd3 where they are vectors."""
    related: bool = False
    """Begin from the team of another task where the recipe names one, instead of from nothing."""
    label: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """Call the teams expert-NAME and medium-NAME instead of expert and medium, to keep several of one task apart."""
    seed: Seed = 0
    """Decides everything that chance has a part in."""
    folder: Path = Path("out/experts")
    """Where trainings keep their state, curve and teams."""
    weights: Path = Path("out/experts/weights")
    """Where the chosen teams go; 'comad collect --weights' plays them."""

    cores: Annotated[Size | None, tyro.conf.arg(metavar="N")] = None
    """Processor cores to use, by default all that this process may use; the same number gives the same bytes."""
    accept_other_machine: bool = False
    """Go on with a training that was begun on another processor, number of cores, jaxlib or XLA flags."""

    def run(self) -> None:
        """Train task by task, then show the teams that were chosen."""
        check_label(self.label)
        use_cores(self.cores)
        cards = [card for task in choose(self.stream, self.tasks).tasks for card in self.train(task)]
        show_cards("Trained", cards)

    def train(self, task: Task) -> list[Card]:
        """Train one task's team and put the chosen ones into the folder of weights."""
        env = envs.make(task.env)
        recipe = self.recipe(env.spec)
        folder = self.folder / f"{env.spec.env}-seed{self.seed}"
        start = self.start(env, recipe)
        begun = (env, recipe.trainer, self.seed, folder)

        def tell(line: str) -> None:
            show_lines([line])

        with progress() as bar:

            def follow(doing: str, steps: int, trained: Iterator[training.Progress], closer: bool) -> dict[str, training.Chosen]:
                bar_task = bar.add_task(f"{doing} {task.name}", total=steps)
                for now in trained:
                    now_doing = f"{doing} {task.name}  return {now.total:.2f}  length {now.length:.1f}"
                    bar.update(bar_task, completed=now.steps, description=now_doing)
                bar.update(bar_task, description=f"choosing among the teams of {task.name}")
                return training.choose_teams(env, recipe.trainer, folder, recipe.chosen_by, recipe.medium, closer)

            trained = training.train(*begun, recipe.every, start, recipe.episodes, tell, self.accept_other_machine)
            # What a closer look has found so far has no say in how far it goes: interrupted, it must end where it would have ended.
            chosen = follow("training", recipe.trainer.steps, trained, closer=False)
            if training.leapt_over(env.spec, chosen, recipe.medium):
                until, every = chosen["medium"][1].steps, max(1, recipe.every // 10)
                trained = training.look_closer(*begun, every, start, recipe.episodes, until, tell, self.accept_other_machine)
                chosen = follow("looking closer at", until, trained, closer=True)
        return [self.put(env, recipe, quality, found) for quality, found in chosen.items()]

    def recipe(self, spec: Spec) -> Recipe:
        """The world's recipe, with the user's trainer and number of steps."""
        found = recipe(spec, self.related)
        if self.trainer is not None and not isinstance(found.trainer, library.TRAINERS[self.trainer]):
            found = dataclasses.replace(found, trainer=library.TRAINERS[self.trainer](), start="")
        if self.steps is None:
            return found
        trainer: Any = found.trainer
        return dataclasses.replace(found, trainer=dataclasses.replace(trainer, steps=self.steps))

    def start(self, env: Env[Any] | HostEnv[Any], recipe: Recipe) -> Any:
        """The other team's expert to begin from: one trained here if there is, else the shipped one."""
        if not recipe.start:
            return None
        start = envs.make(recipe.start)
        return library.beginning(env, start, library.nearest(start, "expert", self.weights))

    def put(self, env: Env[Any] | HostEnv[Any], recipe: Recipe, quality: str, chosen: training.Chosen) -> Card:
        """Write one team's weights and card."""
        team, reached, outcome = chosen
        given = {"trainer": self.trainer, "steps": self.steps, "label": self.label or None}
        options = " --related" if self.related else ""
        options += "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
        card = Card(
            env=env.spec.env,
            rules=env.spec.rules,
            quality=f"{quality}-{self.label}" if self.label else quality,
            algorithm=library.algorithm(recipe.trainer),
            trainer=settings(recipe.trainer),
            start=recipe.start,
            seed=self.seed,
            steps=reached.steps,
            minutes=round(reached.seconds / 60, 1),
            episodes=len(outcome.total),
            total=mean(outcome.total),
            success=mean(outcome.success),
            length=mean(outcome.length),
            command=f"comad experts train --tasks {env.spec.env} --seed {self.seed}{options}",
        )
        return library.put(self.weights, team, card)


@dataclass(frozen=True)
class Show:
    """Show the teams that come with the package, or those in a folder of your own."""

    weights: Path = library.SHIPPED
    """A folder of weights."""

    def run(self) -> None:
        """Print one row per team."""
        found = library.cards(self.weights)
        if not found:
            raise UserError(f"{self.weights}: no weights here; 'comad experts train' makes some")
        show_cards("Experts", found)


@dataclass(frozen=True)
class Experts:
    """Train the policies that record data, show those there are, or compare them."""

    verb: (
        Annotated[Train, tyro.conf.subcommand("train")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Compare, tyro.conf.subcommand("compare")]
        | Annotated[Curves, tyro.conf.subcommand("curves")]
    )

    def run(self) -> None:
        """Do it."""
        self.verb.run()


def check_label(label: str) -> None:
    """Refuses a label that cannot be a part of a file's name."""
    if label and not all(letter.isalnum() or letter in "-_" for letter in label):
        raise UserError(f"--label cannot be {label!r}; use letters, digits, '-' and '_'")


def mean(values: Any) -> float:
    """A mean as a card states it."""
    return round(float(np.asarray(values, float).mean()), 4)


def show_cards(title: str, cards: list[Card]) -> None:
    """Print what teams are worth and what they took."""
    columns = ("world", "quality", "return", "success", "length", "over episodes", "env steps", "minutes", "began from", "seed")
    rows = [
        (
            card.env,
            card.quality,
            f"{card.total:.3f}",
            f"{card.success:.3f}",
            f"{card.length:.2f}",
            card.episodes,
            f"{card.steps:,}",
            f"{card.minutes:.1f}",
            card.start or "nothing",
            card.seed,
        )
        for card in cards
    ]
    show_table(title, columns, rows)
    show_lines(["Means over fresh episodes, played greedily."])
