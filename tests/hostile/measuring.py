"""How much memory something takes, with what libraries take outside Python."""

from collections.abc import Callable
from pathlib import Path

import pytest

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"


def resident_peak(do: Callable[[], object]) -> float:
    """Returns the bytes by which the process grew at most while something was done."""
    try:
        CLEAR.write_text(RESET_PEAK)
    except OSError:
        pytest.skip("this system does not tell the peak of a part of a process")
    before = _status("VmRSS")
    do()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    words = STATUS.read_text().split()
    return 1024.0 * int(words[words.index(f"{name}:") + 1])
