"""Places at which tests make the process die, as if it had been killed there; in normal use they do nothing."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Literal, get_args

RunPoint = Literal[
    "after-lock",
    "after-settings",
    "half-line",
    "before-arrays",
    "after-arrays",
    "before-seal",
    "before-commit",
    "after-commit",
    "before-deletion",
    "while-deleting",
    "after-truncation",
    "while-clearing",
]
FilePoint = Literal["before-file", "half-file", "before-name", "after-name"]
FolderPoint = Literal["before-folder", "before-folder-name", "while-exchanging", "after-folder-name"]
GridPoint = Literal["run-started", "run-ended"]
Point = RunPoint | FilePoint | FolderPoint | GridPoint
RUN_POINTS: tuple[RunPoint, ...] = get_args(RunPoint)
FILE_POINTS: tuple[FilePoint, ...] = get_args(FilePoint)
FOLDER_POINTS: tuple[FolderPoint, ...] = get_args(FolderPoint)
GRID_POINTS: tuple[GridPoint, ...] = get_args(GridPoint)
VARIABLE = "COMAD_FAILPOINT"

_reached: Counter[str] = Counter()


def reach(point: Point, last_act: Callable[[], object] | None = None) -> None:
    """Do nothing, unless the environment names this point, as ``point`` or ``point:N`` for the N-th time here: then die at once."""
    name, _, number = os.environ.get(VARIABLE, "").partition(":")
    if name != point:
        return
    _reached[point] += 1
    if _reached[point] == int(number or 1):
        if last_act:
            last_act()
        os.kill(os.getpid(), signal.SIGKILL)
