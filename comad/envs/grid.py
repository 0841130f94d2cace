"""What the grid worlds share: moving at once without crowding into one cell, and drawing free cells."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from comad.types import Feature, PRNGKey

MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)
"""Row and column change of stay, north, south, west, east."""
MOVE_NAMES = ("stay", "north", "south", "west", "east")

Cells = Int[Array, "entity 2"]


def move_together(cells: Cells, wishes: Cells) -> Cells:
    """Everybody goes to the cell they wish for, except those who wish for the same one: they stay.

    A cell whose holder was held back may still be entered, so two can end up together; that is the rule of both worlds.
    """
    same = (wishes[:, None] == wishes[None]).all(-1)
    contested = same.sum(-1) > 1
    return jnp.where(contested[:, None], cells, wishes)


def inside(cells: Int[Array, "*batch 2"], shape: tuple[int, int]) -> Bool[Array, "*batch"]:
    """Whether a cell lies on the board."""
    row, column = cells[..., 0], cells[..., 1]
    return (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])


def chebyshev(first: Cells, second: Int[Array, "other 2"]) -> Int[Array, "entity other"]:
    """King's-move distances between two sets of cells."""
    return jnp.abs(first[:, None] - second[None]).max(-1)


def board_cells(shape: tuple[int, int]) -> np.ndarray:
    """Every cell of the board, row by row."""
    return np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 2).astype(np.int32)


def draw_cells(key: PRNGKey, free: Bool[Array, " cell"], count: int, shape: tuple[int, int]) -> Cells:
    """Distinct cells, uniform over the free ones; if those do not suffice the rest is drawn from the others."""
    priority = jax.random.uniform(key, free.shape) + free
    chosen = jax.lax.top_k(priority, count)[1]
    return jnp.asarray(board_cells(shape))[chosen]


def cell_features(shape: tuple[int, int]) -> tuple[Feature, Feature]:
    """Row and column, counted from one."""
    return Feature("row", float(shape[0]), integral=True), Feature("column", float(shape[1]), integral=True)


def scaled_cells(cells: Int[Array, "*batch 2"], shape: tuple[int, int]) -> Float[Array, "*batch 2"]:
    """Cells as features: counted from one, so that zero means absent, over the board's size."""
    scales = [feature.scale for feature in cell_features(shape)]
    return jnp.stack([(cells[..., axis] + 1) * scale for axis, scale in enumerate(scales)], axis=-1)
