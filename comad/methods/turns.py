"""Several tasks' data in one block of updates."""

from collections.abc import Sequence

from comad.methods.base import Lot

BLOCK = 1 << 24
"""More updates than any task has: batches are numbered from a multiple of it, so that no two blocks of a stream see the same ones."""


def in_turn(sources: int, task: int, update: int, count: int) -> Sequence[Lot]:
    """One update on each of the first tasks' data, again and again."""
    return [Lot(number % sources, task * BLOCK + number, 1) for number in range(update, update + count)]
