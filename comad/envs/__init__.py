"""Worlds: where teams act. A new one is a file with ``NAMES`` and ``make``, and a line in ``ENVS``."""

from typing import Any

from comad.envs import foraging, navigation
from comad.envs.base import Env, HostEnv
from comad.errors import unknown

ENVS = {"cn": navigation, "lbf": foraging}


def names() -> tuple[str, ...]:
    """The worlds that have a name of their own; each family also takes names with parameters (see its ``make``)."""
    return tuple(name for family in ENVS.values() for name in family.NAMES)


def make(name: str) -> Env[Any] | HostEnv[Any]:
    """The world of that name."""
    family = ENVS.get(name.split("-")[0].lower())
    env = family.make(name.lower()) if family else None
    if env is None:
        raise unknown("world", name, names())
    return env
