"""Moments that look the same: teams that got stuck repeat themselves, and what looks at one moment only need not be computed again.

Half of the medium episodes of LBF run to their limit in circles: of 900 moments of a batch 150 are distinct.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from comad.datasets.layout import columns
from comad.datasets.packing import SAMPLE_SEED, Index, Packing
from comad.datasets.store import Dataset

EPOCHS = 4
"""By whose batches it is judged how many distinct moments one holds."""
MARGIN = 1.1
"""Room beyond the most that these hold."""
WORTH = 0.6
"""Share of distinct moments beyond which handing results around costs what it saves."""
MULTIPLE = 16
"""Of which room is one, for the sake of matrix products."""


@dataclass(frozen=True, eq=False)
class Repeats:
    """Which moments of a dataset look the same, and room for those of a batch that do not."""

    same: Int[np.ndarray, " moment"]
    """A number that moments share if and only if they look the same."""
    room: int

    @classmethod
    def find(cls, dataset: Dataset, packing: Packing) -> "Repeats | None":
        """Those of a dataset, if batches hold so many that they are worth the trouble."""
        if (same := alike(dataset)) is None:
            return None
        room = 0
        for look in range(EPOCHS * packing.batches_per_epoch):
            count = len(_distinct(same, packing.index(SAMPLE_SEED, 0, look))[0])
            room = max(room, -int(-MARGIN * count // MULTIPLE) * MULTIPLE)
            if room > WORTH * packing.rows * packing.row_length:
                return None
        return cls(same, room)

    def mark(self, indices: list[Index]) -> list[Index]:
        """The same batches with their distinct moments; as they are, if one has more than there is room for."""
        marked = [self._mark(index) for index in indices]
        fitting = [index for index in marked if index is not None]
        return fitting if len(fitting) == len(indices) else indices

    def _mark(self, index: Index) -> Index | None:
        chosen, place = _distinct(self.same, index)
        if len(chosen) > self.room:
            return None
        chosen = np.pad(chosen, (0, self.room - len(chosen)), mode="edge")
        distinct, opening = np.asarray(index.moment).reshape(-1)[chosen], np.asarray(index.first).reshape(-1)[chosen]
        return replace(index, distinct=distinct, opening=opening, place=place.reshape(index.moment.shape).astype(np.int32))


def _distinct(same: np.ndarray, index: Index) -> tuple[np.ndarray, np.ndarray]:
    """Where in a batch each look is seen first, and which of these every moment has; padding is a look of its own."""
    looks = np.where(index.present, same[index.moment], -1)
    _, chosen, place = np.unique(looks, return_index=True, return_inverse=True)
    return chosen, place


def alike(dataset: Dataset) -> Int[np.ndarray, " moment"] | None:
    """A number for every moment, shared by those that look the same: situation, sight, choice, action and the action before.

    None where features are real numbers, of which hardly two are ever the same.
    """
    described = [column for column in columns(dataset.spec) if column.kind != "number"]
    if any(column.dtype != "uint8" and np.prod(column.shape) > 0 for column in described):
        return None
    starts, count = np.asarray(dataset.starts), len(dataset.arrays["reward"])
    parts = [np.asarray(dataset.arrays[column.name]).reshape(count, -1).astype(np.uint8) for column in described]
    before = np.roll(np.asarray(dataset.arrays["actions"]).reshape(count, -1), 1, axis=0)
    begins = np.zeros((count, 1), np.uint8)
    begins[starts] = 1
    looks = np.ascontiguousarray(np.concatenate([*parts, np.where(begins, 0, before), begins], axis=1))
    return np.unique(looks.view(np.dtype((np.void, looks.shape[1]))).reshape(-1), return_inverse=True)[1]
