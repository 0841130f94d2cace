"""Worlds: where teams act. A new one is a file with ``NAMES`` and ``make``, and a line in ``ENVS``."""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax

from comad.envs import ant, ant_tokens, battle, foraging, navigation, starcraft
from comad.envs.base import Demanding, Env, HostEnv, not_installed
from comad.errors import UserError, unknown
from comad.tokens import full_view
from comad.types import Spec, StateTokens, Tokens

ENVS = {"cn": navigation, "lbf": foraging, "battle": battle, "starcraft": starcraft, "ant": ant}
EXTRAS = {"battle": "jaxmarl", "ant": "mujoco"}
"""Families that play in somebody else's simulator, and its package; the extra that installs it has the family's name."""
VIEWS: dict[str, Callable[[StateTokens], tuple[Tokens, Any]]] = {"battle": battle.look, **ant_tokens.VIEWS}
"""How agents see part of what there is, by the name that specs have for it (`Spec.view`)."""


def names() -> tuple[str, ...]:
    """The worlds that have a name of their own; each family also takes names with parameters (see its ``make``)."""
    return tuple(name for family in ENVS.values() for name in family.NAMES)


def find(name: str) -> Env[Any] | HostEnv[Any]:
    """The world of that name, even if it cannot be played here because its simulator is not installed."""
    return _find(name)[1]


def make(name: str) -> Env[Any] | HostEnv[Any]:
    """The world of that name, ready to be played."""
    family, env = _find(name)
    if family in EXTRAS and importlib.util.find_spec(EXTRAS[family]) is None:
        raise not_installed(f"worlds like {name}", EXTRAS[family], family)
    if isinstance(env, Demanding):
        env.check_playable()
    return env


def look(spec: Spec, state: StateTokens) -> Tokens:
    """What agents see, where that follows from the state (`Spec.seen_in_state`); with any leading axes."""
    if spec.full_view:
        return full_view(state)
    see = VIEWS[spec.view]
    for _ in state.agents.shape[:-2]:
        see = jax.vmap(see)
    return see(state)[0]


def missing_extras() -> set[str]:
    """Families whose simulator is not installed, going by the first world of each."""
    return {family for family, module in ENVS.items() if not _is_playable(module.NAMES[0])}


def _is_playable(name: str) -> bool:
    try:
        make(name)
    except UserError:
        return False
    return True


def _find(name: str) -> tuple[str, Env[Any] | HostEnv[Any]]:
    """A world and its family. Each family knows its names, so all are asked."""
    for family, module in ENVS.items():
        env = module.make(name.lower())
        if env is not None:
            return family, env
    raise unknown("world", name, names())
