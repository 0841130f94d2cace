"""Memory that a compiled program has used is kept for its next call."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Numbers of glibc's settings."""
ALL = 2**31 - 1


def keep_memory() -> bool:
    """Ask the C library not to hand freed memory back to the system; says whether it will (glibc does, others are not asked).

    Every call of an update takes tens of megabytes and frees them at its end. Handed back, they are mapped and zeroed anew by the next
    call: up to two fifths of the time of methods that change between tasks from update to update.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, ALL))
