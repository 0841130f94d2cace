"""How many threads a simulator outside JAX may use."""

import os

from comad.errors import UserError


def usable_cores() -> int:
    """Cores this process may run on, which a container or batch system can make fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def most_threads() -> int:
    """One per usable core, or what ``COMAD_THREADS`` says."""
    given = os.environ.get("COMAD_THREADS", "")
    if not given:
        return usable_cores()
    if not given.isdecimal() or int(given) < 1:
        raise UserError(f"COMAD_THREADS must be a number of threads from 1, not {given!r}")
    return int(given)
