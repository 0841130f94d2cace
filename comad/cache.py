"""Compiled programs kept on disk, so that a second start does not compile them again."""

import os
import stat
from pathlib import Path

WORTH_KEEPING_SECONDS = 0.5
"""Programs that compile faster than this are not worth a file."""


def cache_folder() -> Path:
    """Where comad keeps what it can make again: ``$COMAD_CACHE``, or ``~/.cache/comad``."""
    given = os.environ.get("COMAD_CACHE")
    return Path(given) if given else Path("~/.cache/comad").expanduser()


def compile_folder() -> Path | None:
    """Where compiled programs are kept, made if need be; none if it cannot be made or others could put programs of theirs there."""
    try:
        root = cache_folder().absolute()
        root.parent.mkdir(parents=True, exist_ok=True)
        # XLA divides work by the number of cores while it compiles, and JAX does not look at that number when it finds a program again.
        folder = root / f"xla-{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}"
        for path in (root, folder):
            path.mkdir(mode=0o700, exist_ok=True)
        return folder if _only_ours(root) and _only_ours(folder) else None
    except (OSError, RuntimeError):  # no rights, no space, or no home at all: slower starts, nothing worse
        return None


def enable_compile_cache() -> Path | None:
    """Let JAX keep compiled programs on disk, if there is a safe place for them."""
    import jax  # takes a third of a second, which those who only look at the machine do not need

    folder = compile_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING_SECONDS)
    return folder


def _only_ours(path: Path) -> bool:
    status = path.stat()
    owned = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return owned and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and os.access(path, os.W_OK)
