"""Batches without waste: whole episodes end to end in rows of one length.

An epoch puts every episode into some row, first come, first fit, in an order drawn anew; batches are rows in random order. Everything is
a function of the seed, the task and the number of the update, so a run that goes on needs no memory of what it has seen.
"""

import bisect
import dataclasses
from dataclasses import dataclass
from functools import lru_cache

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Int

from comad.errors import UserError

PLACED = 0.995
"""Share of the episodes that must find a place in an epoch; the others, never the same ones, wait for the next."""
WASTE = 0.05
"""Padding that is not worth longer rows."""


class Index(eqx.Module):
    """Where a batch's moments stand in the dataset."""

    moment: Int[Array | np.ndarray, "row time"]
    first: Bool[Array | np.ndarray, "row time"]
    """An episode begins here: memory starts afresh."""
    step: Bool[Array | np.ndarray, "row time"]
    """An action was taken here and the next moment of the row is what followed; false in last moments and padding."""
    present: Bool[Array | np.ndarray, "row time"]
    """A moment of an episode, not padding."""


@dataclass(frozen=True)
class Packing:
    """How a dataset's episodes are laid into rows."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    batch: int
    """Episodes per batch, on average."""
    rows: int
    """Rows per batch."""
    row_length: int
    rows_per_epoch: int

    @classmethod
    def plan(cls, starts: np.ndarray, lengths: np.ndarray, batch: int) -> "Packing":
        """Choose the shortest rows (they are the quickest to learn from) that hold the wanted number of episodes with little waste."""
        moments = lengths.astype(np.int64) + 1
        if not 1 <= batch <= len(moments):
            raise UserError(f"a batch of {batch} episodes cannot be drawn from {len(moments)}")
        wanted = batch * moments.mean()
        candidates: list[Packing] = []
        rows = max(1, int(wanted // moments.max()))
        while rows and not (candidates and candidates[-1].padding <= WASTE):
            rows_per_epoch = max(rows, round(len(moments) / batch * rows))
            shortest = max(int(moments.max()), int(wanted / rows))
            packing = cls(tuple(starts.tolist()), tuple(lengths.tolist()), batch, rows, shortest, rows_per_epoch)
            candidates.append(packing.stretched())
            rows = int(0.85 * rows)
        return min(candidates, key=lambda packing: packing.padding)

    def stretched(self) -> "Packing":
        """The same with rows just long enough for almost all episodes to find a place."""
        places = range(self.row_length, self.row_length + 2 * max(self.lengths) + 2)
        fits = bisect.bisect_left(places, True, key=lambda length: dataclasses.replace(self, row_length=length).placed >= PLACED)
        return dataclasses.replace(self, row_length=places[fits])

    @property
    def placed(self) -> float:
        """Share of the episodes that find a place, in one epoch's order."""
        return sum(map(len, _epoch(self, 0, 0, 0))) / len(self.lengths)

    @property
    def padding(self) -> float:
        """Share of the rows that holds nothing, in one epoch's order."""
        filled = sum(self.lengths[episode] + 1 for row in _epoch(self, 0, 0, 0) for episode in row)
        return 1.0 - filled / (self.rows_per_epoch * self.row_length)

    @property
    def batches_per_epoch(self) -> int:
        """Updates after which episodes come again."""
        return self.rows_per_epoch // self.rows

    def index(self, seed: int, task: int, update: int) -> Index:
        """The moments of one batch."""
        epoch, batch = divmod(update, self.batches_per_epoch)
        rows = _epoch(self, seed, task, epoch)[batch * self.rows : (batch + 1) * self.rows]
        return self._lay(rows)

    def _lay(self, rows: list[list[int]]) -> Index:
        shape = (self.rows, self.row_length)
        moment, first, step, present = np.zeros(shape, np.int32), np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, bool)
        for row, episodes in enumerate(rows):
            time = 0
            for episode in episodes:
                end = time + self.lengths[episode]
                moment[row, time : end + 1] = np.arange(self.starts[episode], self.starts[episode] + self.lengths[episode] + 1)
                first[row, time] = True
                step[row, time:end] = True
                present[row, time : end + 1] = True
                time = end + 1
        return Index(moment, first, step, present)


@lru_cache(maxsize=32)
def _epoch(packing: Packing, seed: int, task: int, epoch: int) -> list[list[int]]:
    """Episodes by row for one epoch."""
    random = np.random.default_rng([seed, task, epoch])
    room = np.full(packing.rows_per_epoch, packing.row_length)
    rows: list[list[int]] = [[] for _ in range(packing.rows_per_epoch)]
    for episode in random.permutation(len(packing.lengths)).tolist():
        needed = packing.lengths[episode] + 1
        row = int((room >= needed).argmax())
        if room[row] >= needed:  # otherwise the rows are full and the episode waits for the next epoch
            rows[row].append(episode)
            room[row] -= needed
    laid = [rows[row] for row in random.permutation(len(rows))]
    _leave_none_empty(laid, packing.rows)
    return laid


def _leave_none_empty(rows: list[list[int]], batch: int) -> None:
    """Give every batch of only empty rows an episode from the row with most: where some are far shorter than others, rows stay empty."""
    for first in range(0, len(rows) - batch + 1, batch):
        if not any(rows[first : first + batch]):
            fullest = max(rows, key=len)
            if len(fullest) > 1:
                rows[first].append(fullest.pop())
