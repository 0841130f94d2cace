"""Batches without waste: whole episodes end to end in rows of one length, or pieces of long episodes.

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
SAMPLE_SEED = 2**32
"""Beyond every seed of a run, so that all runs judge data by the same sample of it."""
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
    distinct: Int[Array | np.ndarray, " distinct"] | None = None
    """Moments of this batch that look different, where many look the same (`repeats`)."""
    opening: Bool[Array | np.ndarray, " distinct"] | None = None
    """An episode begins with such a moment."""
    place: Int[Array | np.ndarray, "row time"] | None = None
    """Which of them each moment looks like."""


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
            # With few episodes to a batch, fewer rows may hold too few of them, however long they are.
            candidates += [longer] if (longer := packing.stretched()) else []
            rows = int(0.85 * rows)
        if not candidates:
            raise UserError(
                f"{len(moments)} episodes of such different lengths cannot be packed into batches of {batch}; give another --batch"
            )
        return min(candidates, key=lambda packing: packing.padding)

    def stretched(self) -> "Packing | None":
        """The same with rows just long enough for almost all episodes to find a place, if they can be."""
        places = range(self.row_length, self.row_length + 2 * max(self.lengths) + 2)
        fits = bisect.bisect_left(places, True, key=lambda length: dataclasses.replace(self, row_length=length).placed >= PLACED)
        return dataclasses.replace(self, row_length=places[fits]) if fits < len(places) else None

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

    def only(self, chosen: np.ndarray) -> "Packing":
        """The same of some episodes, in batches of the same shape."""
        rows = max(self.rows, round(len(chosen) / self.batch * self.rows))
        return dataclasses.replace(self, starts=_some(self.starts, chosen), lengths=_some(self.lengths, chosen), rows_per_epoch=rows)

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


@dataclass(frozen=True)
class Pieces:
    """How long episodes are cut: rows of a few neighboring steps and the moment after them, all steps in an order drawn anew each epoch.

    Whoever remembers does so within a row only.
    """

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    batch: int
    """Steps per batch."""
    window: int
    """Steps per row."""

    @property
    def rows(self) -> int:
        """Rows per batch."""
        return max(1, self.batch // self.window)

    @property
    def row_length(self) -> int:
        """Moments per row."""
        return self.window + 1

    @property
    def padding(self) -> float:
        """Share of the rows that holds nothing: what episodes leave of their last rows."""
        pieces = [-(-length // self.window) for length in self.lengths]
        return 1.0 - (sum(self.lengths) + sum(pieces)) / (sum(pieces) * self.row_length)

    @property
    def batches_per_epoch(self) -> int:
        """Updates after which steps come again."""
        return max(1, len(_pieces(self)[0]) // self.rows)

    def only(self, chosen: np.ndarray) -> "Pieces":
        """The same of some episodes."""
        return dataclasses.replace(self, starts=_some(self.starts, chosen), lengths=_some(self.lengths, chosen))

    def index(self, seed: int, task: int, update: int) -> Index:
        """The moments of one batch."""
        begins, steps, opens = _pieces(self)
        epoch, batch = divmod(update, self.batches_per_epoch)
        order = _shuffled(len(begins), seed, task, epoch)
        rows = np.resize(order[batch * self.rows : (batch + 1) * self.rows], self.rows)
        time = np.arange(self.row_length)[None]
        present = time <= steps[rows, None]
        first = np.zeros(present.shape, bool)
        first[:, 0] = opens[rows]
        moment = np.where(present, begins[rows, None] + time, 0).astype(np.int32)
        return Index(moment, first, time < steps[rows, None], present)


@lru_cache(maxsize=8)
def _pieces(packing: Pieces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every row there can be: its first moment, its steps, and whether an episode begins with it."""
    counts = -(-np.array(packing.lengths) // packing.window)
    offsets = packing.window * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
    steps = np.minimum(packing.window, np.repeat(packing.lengths, counts) - offsets)
    return np.repeat(packing.starts, counts) + offsets, steps, offsets == 0


@lru_cache(maxsize=8)
def _shuffled(count: int, seed: int, task: int, epoch: int) -> np.ndarray:
    """Rows in the order of one epoch."""
    return np.random.default_rng([seed, task, epoch]).permutation(count)


def _some(values: tuple[int, ...], chosen: np.ndarray) -> tuple[int, ...]:
    return tuple(np.asarray(values)[chosen].tolist())


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
