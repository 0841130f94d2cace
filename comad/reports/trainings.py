"""How experts were trained, as a picture: return by steps, and by minutes."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from comad.reports.figures import COLORS


@dataclass(frozen=True)
class Training:
    """A line of the picture."""

    name: str
    steps: tuple[int, ...]
    minutes: tuple[float, ...]
    returns: tuple[float, ...]


def draw(trainings: Sequence[Training]) -> Figure:
    """By steps a trainer's thrift is seen, by minutes its speed."""
    figure = Figure(figsize=(7.6, 2.8), layout="constrained")
    by_steps, by_minutes = figure.subplots(1, 2, sharey=True)
    for place, training in enumerate(trainings):
        color = COLORS[place % len(COLORS)]
        by_steps.plot([steps / 1000 for steps in training.steps], training.returns, color=color, label=training.name)
        by_minutes.plot(training.minutes, training.returns, color=color, label=training.name)
    by_steps.set_xlabel("thousand steps")
    by_steps.set_ylabel("mean return")
    by_minutes.set_xlabel("minutes")
    by_minutes.legend(loc="lower right", fontsize=8)
    return figure
