"""Recordings of several teams shuffled into one: mixed data, from which a learner has to tell good play from bad."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from comad.datasets.layout import EPISODE_COLUMNS, episode_starts
from comad.datasets.store import Dataset, check_world, write
from comad.errors import UserError


def mix(path: Path, parts: Sequence[Dataset], quality: str, num_episodes: int) -> Dataset:
    """Write a dataset whose episodes come from each part in turn, from their first ones on; its origin tells the parts' contents.

    Args:
        path: where it goes.
        parts: recordings of one world.
        quality: what to call the mixture.
        num_episodes: in all; the first parts give one more if it does not divide.
    """
    for part in parts[1:]:
        check_world(part, parts[0].spec)
    takes = [len(range(number, num_episodes, len(parts))) for number in range(len(parts))]
    for part, take in zip(parts, takes, strict=True):
        if take > len(part.lengths):
            raise UserError(
                f"{part.path}: has {len(part.lengths)} episodes, and a mixture of {num_episodes} needs {take}; "
                "give fewer --episodes, or collect more"
            )
    # One row per episode of the mixture: which part it is from, and its place there.
    turns = [(number % len(parts), number // len(parts)) for number in range(num_episodes)]
    whole = {name: [part.read(name) for part in parts] for name, column in parts[0].columns.items() if column not in EPISODE_COLUMNS}
    pieces = [(part, slice(parts[part].starts[row], parts[part].starts[row] + parts[part].lengths[row] + 1)) for part, row in turns]
    values = {name: np.concatenate([arrays[part][piece] for part, piece in pieces]) for name, arrays in whole.items()}
    for column in EPISODE_COLUMNS:
        values[column.name] = np.array([parts[part].arrays[column.name][row] for part, row in turns])
    values["episode.start"] = episode_starts(values["episode.length"])
    origin = {"kind": "mixed", "parts": [[part.quality, part.content] for part in parts]}
    return write(path, parts[0].spec, quality, values, origin)
