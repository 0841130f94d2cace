"""Datasets recorded by other people with other code, where they are at hand."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

FOLDER = Path(os.environ.get("COMAD_ODIS_DATA", Path(__file__).parents[2] / "shared" / "data" / "odis"))


def odis_file(task: str, quality: str) -> Path:
    """The path of a recorded file; skips the calling test where it is absent."""
    path = FOLDER / task / quality / "part_0.h5"
    if not path.exists():
        pytest.skip(f"no recorded {task} {quality} data (set COMAD_ODIS_DATA to the folder that holds {task}/{quality}/part_0.h5)")
    return path


def odis_arrays(task: str, quality: str) -> dict[str, np.ndarray]:
    """Every field of a recorded file."""
    with h5py.File(odis_file(task, quality)) as file:
        return {name: np.asarray(values) for name, values in file.items()}
