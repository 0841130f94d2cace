"""The contract every world meets, so that nothing above this folder knows which world it is in."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from comad.envs.scene import Scene
from comad.errors import UserError
from comad.types import Actions, PRNGKey, Spec, Step

World = TypeVar("World")


@runtime_checkable
class Env(Protocol[World]):
    """One world in JAX: pure functions of explicit state, without any batch axis.

    An env is a frozen dataclass of its rules, hence hashable and static under ``jit``. ``step`` executes an unavailable action as
    the world's "do nothing"; it may be called after the end, its result is then thrown away (`rollout` freezes ended episodes).
    """

    @property
    def spec(self) -> Spec:
        """Shapes, names and identity of this world."""
        ...

    def reset(self, key: PRNGKey) -> tuple[World, Step]:
        """A fresh episode."""
        ...

    def step(self, world: World, actions: Actions, key: PRNGKey) -> tuple[World, Step]:
        """All agents act at once."""
        ...

    def scene(self, world: World) -> Scene:
        """What a person should see of this moment; called on the host with concrete arrays."""
        ...


@runtime_checkable
class HostEnv(Protocol[World]):
    """Many worlds of a simulator outside JAX, stepped together: the verbs of `Env` with a leading episode axis, NumPy in, tokens out.

    All chance comes from the seeds given at reset. ``active`` marks the episodes still running; the others must be left alone, and
    whatever is returned for them is thrown away.
    """

    @property
    def spec(self) -> Spec:
        """Shapes, names and identity of this world."""
        ...

    def reset_many(self, seeds: np.ndarray) -> tuple[World, Step]:
        """One fresh episode per seed (uint32)."""
        ...

    def step_many(self, world: World, actions: np.ndarray, active: np.ndarray) -> tuple[World, Step]:
        """All agents of all active episodes act at once."""
        ...

    def scene(self, world: World) -> Scene:
        """What a person should see of this moment of one episode (``world`` as recorded, without the episode axis)."""
        ...


@runtime_checkable
class Scarce(Protocol):
    """A world of which few can be played side by side, such as a game that is a program of its own. More are played in turn."""

    @property
    def at_once(self) -> int:
        """The most episodes at a time."""
        ...


@runtime_checkable
class Lanes(Protocol[World]):
    """Episodes of worlds outside JAX that are played together: what a `HostEnv` does, whether of one world or of several."""

    @property
    def spec(self) -> Spec:
        """Shapes common to all."""
        ...

    def reset_many(self, seeds: np.ndarray) -> tuple[World, Step]:
        """One fresh episode per seed (uint32)."""
        ...

    def step_many(self, world: World, actions: np.ndarray, active: np.ndarray) -> tuple[World, Step]:
        """All agents of all active episodes act at once."""
        ...


@runtime_checkable
class Sociable(Protocol):
    """A world whose episodes can be played together with those of others of its shape."""

    def beside(self, others: Sequence[Any]) -> Lanes[Any]:
        """This world and others, each with an equal share of the episodes."""
        ...


@runtime_checkable
class Demanding(Protocol):
    """A world that needs more than a package, such as a game in some folder."""

    def check_playable(self) -> None:
        """Refuse to be played where something is missing, and say what."""
        ...


class SimulatorError(UserError):
    """A simulator broke down in the middle of its episodes, which are lost and can only be played again from their starts."""


LONGEST = 100_000
"""Steps that an episode may be allowed: whoever plays one keeps room for all of them."""


def check_limit(name: str, limit: int) -> None:
    """Refuse a limit that no episode can have."""
    if not 1 <= limit <= LONGEST:
        raise UserError(f"{name}: the limit must be 1 to {LONGEST} steps, not {limit}")


def rules_of(family: str, version: int, settings: Mapping[str, Any]) -> str:
    """Returns what identifies an environment, as canonical JSON.

    Args:
        family: its family.
        version: of that family's code.
        settings: what decides its rules, by names that stay as they are whatever fields are called.
    """
    found = {"family": family, "version": version, "settings": settings}
    return json.dumps(found, sort_keys=True)


def not_installed(what: str, package: str, extra: str) -> UserError:
    """An error for worlds of a simulator that is not there, with the line that installs it."""
    return UserError(f"{what} need {package}, which is not installed: pip install 'comad[{extra}]'")
