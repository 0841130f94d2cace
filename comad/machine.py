"""The machine that a run is made on, as far as its numbers depend on it: processor, number of cores, XLA's flags, jaxlib.

The same settings give the same bytes on the same kind of machine, whoever starts the run: ``use_cores`` is the one place that decides how
many cores a process has and which flags follow from that.
"""

import fcntl
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from comad.cache import cache_folder, enable_compile_cache
from comad.errors import UserError

FLAGS = "XLA_FLAGS"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""With one core, threads of XLA only get in each other's way."""
JAX_SETTINGS = (
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DEFAULT_PRNG_IMPL",
    "JAX_DISABLE_JIT",
    "JAX_DISABLE_MOST_OPTIMIZATIONS",
    "JAX_ENABLE_X64",
    "JAX_NUMPY_DTYPE_PROMOTION",
    "JAX_THREEFRY_PARTITIONABLE",
)
"""Variables by which JAX computes other numbers."""
_claims: list[int] = []
"""Open handles on the cores that this process has claimed; they close when it ends."""


def available_cores() -> list[int]:
    """Returns the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def use_cores(count: int | None = None) -> None:
    """Restricts this process to so many cores, by default all that it may use, and sets the flags of XLA that go with their number.

    Call it before JAX computes anything: afterwards the number is fixed, and asking for another one is an error.
    """
    cores = available_cores()
    if count is not None and count > len(cores):
        raise UserError(f"--cores is {count}, but this process may use only {len(cores)}; give at most {len(cores)}")
    wanted = len(cores) if count is None else count
    if _jax_has_started():
        if wanted != len(cores):
            raise UserError(f"--cores {wanted} comes too late: JAX already runs on {len(cores)}; start a process of its own for it")
        return
    if wanted < len(cores):
        os.sched_setaffinity(0, claim_cores(wanted, cores))
    if wanted == 1:
        os.environ[FLAGS] = add_flag(os.environ.get(FLAGS, ""), ONE_THREAD)
    enable_compile_cache()


def claim_cores(count: int, cores: list[int], folder: Path | None = None) -> set[int]:
    """Chooses so many cores, first those that no other run on this machine has claimed, so that two runs do not share one by accident."""
    place = folder or cache_folder() / "cores"
    try:
        place.mkdir(parents=True, exist_ok=True)
        chosen = [core for core in cores if len(_claims) < count and _claim(place / str(core))]
    except OSError:  # no place for claims: any cores will do
        chosen = []
    return {*chosen, *[core for core in cores if core not in chosen][: count - len(chosen)]}


def describe_machine() -> dict[str, Any]:
    """Returns what a run's bytes depend on besides its settings, data and code."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": len(available_cores()),
        "xla_flags": effective_flags(os.environ.get(FLAGS, "")),
        "jaxlib": version("jaxlib"),
        **_departures(),
    }


def _departures() -> dict[str, Any]:
    """Returns what most machines have no need to tell: settings of JAX that change numbers, and an accelerator."""
    changed = {name: os.environ[name] for name in JAX_SETTINGS if name in os.environ}
    accelerator = _accelerator() if _jax_has_started() else None
    return {**({"jax_settings": changed} if changed else {}), **({"accelerator": accelerator} if accelerator else {})}


def _accelerator() -> str | None:
    """Returns the kind of device that JAX computes on, unless it is the processor."""
    import jax

    return None if jax.default_backend() == "cpu" else str(jax.devices()[0].device_kind)


def effective_flags(flags: str) -> list[str]:
    """Returns flags in the order of their names; of one that is given twice, the last, which counts."""
    return sorted({flag.partition("=")[0]: flag for flag in flags.split()}.values())


def processor(source: Path = Path("/proc/cpuinfo")) -> str:
    """Returns the processor's name."""
    try:
        lines = source.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def add_flag(flags: str, flag: str) -> str:
    """Adds a flag to a line of them, once."""
    return " ".join([*(found for found in flags.split() if found != flag), flag])


def _claim(path: Path) -> bool:
    """Takes the lock of a core, unless another process holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return False
    _claims.append(handle)
    return True


def _jax_has_started() -> bool:
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())
