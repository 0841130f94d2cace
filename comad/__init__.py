"""Continual, offline, multi-agent learning: teams that learn one task after another from recorded data."""

__version__ = "0.1.0"
