"""Units of battles, drawn alike in every game: discs with the letter of their kind under a bar of health, ours blue and theirs red."""

from collections.abc import Sequence
from dataclasses import dataclass

from comad.envs.scene import AGENT, DONE, FAINT, FOE, Color, Mark

BAR_WIDTH, BAR_GAP = 1.2, 0.35
"""Of the bars of health, in cells."""


@dataclass(frozen=True)
class Fighter:
    """A living unit, at a point given in cells as marks are."""

    row: float
    column: float
    ours: bool
    letter: str
    radius: float
    health: float
    """The share that is left."""

    @property
    def color(self) -> Color:
        """By its side."""
        return AGENT if self.ours else FOE


def draw(fighters: Sequence[Fighter]) -> tuple[Mark, ...]:
    """Discs first, so that no bar is covered by somebody else."""
    discs = [Mark("disc", unit.row, unit.column, unit.color, label=unit.letter.upper(), size=2 * unit.radius) for unit in fighters]
    bars = []
    for unit in fighters:
        top = unit.row - unit.radius - BAR_GAP
        bars.append(Mark("bar", top, unit.column, FAINT, size=BAR_WIDTH))
        bars.append(Mark("bar", top, unit.column - BAR_WIDTH * (1 - unit.health) / 2, DONE, size=BAR_WIDTH * unit.health))
    return (*discs, *bars)
