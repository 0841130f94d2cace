"""`comad experts compare`: how related the tasks of a stream are, by what the policy of one does in another."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from comad import envs
from comad.cli.tasks import choose
from comad.cli.terminal import progress, show_json, show_lines, show_table
from comad.evaluation import score
from comad.experts import library
from comad.experts.relatedness import Relation, compare
from comad.metrics import percent
from comad.ranges import Count, Seed, ranged


@dataclass(frozen=True)
@ranged
class Compare:
    """Let the policy of every task of a stream play every other task, without learning."""

    stream: tyro.conf.Positional[str]
    """A stream; 'comad list' shows them."""
    quality: tuple[str, ...] = ("expert", "expert-related")
    """The policies to compare, a table for each quality."""
    episodes: Count = 256
    """Fresh episodes for each policy and task."""
    seed: Seed = 0
    """Decides where they start."""
    weights: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = library.SHIPPED
    """A folder of weights of your own, searched before that of the package."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Plays all pairs, and prints two matrices for each quality."""
        stream = choose(self.stream, None)
        worlds = [envs.make(task.env) for task in stream.tasks]
        found: dict[str, list[Relation]] = {}
        with progress() as bar:
            playing = bar.add_task("playing", total=len(self.quality) * len(worlds) ** 2)
            for quality in self.quality:
                found[quality] = []
                for relation in compare(worlds, quality, self.weights, self.episodes, self.seed):
                    found[quality].append(relation)
                    bar.advance(playing)
        names = [task.name for task in stream.tasks]
        scores = {quality: self.scores(relations, worlds, stream.metric) for quality, relations in found.items()}
        same = {quality: matrix([one.likeness for one in relations], len(names)) for quality, relations in found.items()}
        if self.json:
            tables = {quality: {"scores": scores[quality].tolist(), "likeness": same[quality].tolist()} for quality in found}
            show_json({"tasks": names, "episodes": self.episodes, "seed": self.seed, "qualities": tables})
            return
        alike = "distance of actions" if worlds[0].spec.continuous else "same actions, %"
        for quality in found:
            digits = 2 if worlds[0].spec.continuous else 0
            shown = same[quality] if digits else 100 * same[quality]
            self.show(f"{quality}: score of the policy of a row on the task of a column", names, scores[quality], 1)
            self.show(f"{quality}: {alike}, where the column's own policy plays", names, shown, digits)
        show_lines([f"Greedy play, {self.episodes} episodes each."])

    def scores(self, relations: list[Relation], worlds: list[Any], metric: Any) -> np.ndarray:
        """Returns scores in percent, policies down and tasks across."""
        found = []
        for one in relations:
            total, success = (float(np.asarray(part, float).mean()) for part in (one.outcome.total, one.outcome.success))
            found.append(percent(np.asarray(score(total, success, worlds[one.task].spec, metric))).item())
        return matrix(found, len(worlds))

    def show(self, title: str, names: list[str], values: np.ndarray, digits: int) -> None:
        """Prints a matrix, and the mean of what is not on its diagonal."""
        rows = [(name, *(f"{value:.{digits}f}" for value in row)) for name, row in zip(names, values, strict=True)]
        show_table(title, ("policy of", *names), rows)
        others = values[~np.eye(len(names), dtype=bool)]
        if others.size:
            show_lines([f"mean over other tasks: {others.mean():.{max(digits, 1)}f}"])


def matrix(values: list[float], size: int) -> np.ndarray:
    """Returns what was found task by task as policies down and tasks across."""
    return np.array(values).reshape(size, size).T
