"""A moment of a world as a list of marks on a board: what to draw, not how."""

from dataclasses import dataclass
from typing import Literal

Color = tuple[int, int, int]
Shape = Literal["disc", "diamond", "square", "zone", "bar", "line"]

PAPER: Color = (250, 249, 245)
INK: Color = (46, 52, 64)
AGENT: Color = (42, 111, 187)
GOAL: Color = (214, 137, 16)
FOOD: Color = (192, 57, 43)
DONE: Color = (39, 148, 83)
FOE: Color = (176, 58, 88)
FAINT: Color = (203, 206, 212)


@dataclass(frozen=True)
class Mark:
    """One thing on the board, at a point given in cells (the center of the top left cell is 0, 0)."""

    shape: Shape
    row: float
    column: float
    color: Color
    label: str = ""
    size: float = 0.72
    """Width in cells."""
    end: tuple[float, float] | None = None
    """Row and column where a line ends."""


@dataclass(frozen=True)
class Scene:
    """A board of cells, the marks on it (later ones on top) and a line of text above it."""

    rows: int
    columns: int
    marks: tuple[Mark, ...]
    title: str
    seconds: float = 0.35
    """How long to show it in a film."""
