"""What a run costs: where its seconds went, and the most memory it held. Measured, so it differs from machine to machine and day to day."""

import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import jax

Work = Literal["learning", "evaluation"]
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
"""What JAX tells of whenever a program is made, also if the compiler's cache then knows it."""


class Ledger:
    """Adds up the cost of a run over all its sittings."""

    def __init__(self, before: Mapping[str, Any] | None = None) -> None:
        self._sums = {f"{work}_{size}": 0.0 for work in ("learning", "evaluation") for size in ("seconds", "count")}
        self._sums |= {"compiling_seconds": 0.0, "sittings": 0.0, "peak_bytes": 0.0}
        self._sums |= {name: value for name, value in (before or {}).items() if name in self._sums}
        self._sums["sittings"] += 1

    @contextmanager
    def timing(self, work: Work, count: int) -> Iterator[None]:
        """Time some updates or evaluations. Those during which a program was made count as compiling: they say nothing on speed."""
        made = _made
        begun = time.perf_counter()
        yield
        seconds = time.perf_counter() - begun
        if _made != made:
            self._sums["compiling_seconds"] += seconds
        else:
            self._sums[f"{work}_seconds"] += seconds
            self._sums[f"{work}_count"] += count

    def total(self) -> dict[str, float]:
        """All sums up to now."""
        unit = 1 if sys.platform == "darwin" else 1024
        peak = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
        return {**self._sums, "peak_bytes": max(peak, self._sums["peak_bytes"])}


_made = 0


def _hear(event: str, duration_secs: float, **details: str | int) -> None:
    global _made
    _made += event == LOWERED


jax.monitoring.register_event_duration_secs_listener(_hear)
