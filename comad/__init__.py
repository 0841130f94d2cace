"""Continual, offline, multi-agent learning: teams that learn one task after another from recorded data."""

from typing import Any

__version__ = "0.1.1"


def __getattr__(name: str) -> Any:
    """Let ``from comad import Policy`` work without loading JAX for those who only want to read a version or a score."""
    if name == "Policy":
        from comad.policy import Policy

        return Policy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
