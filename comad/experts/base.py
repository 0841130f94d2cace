"""What a trainer is: a frozen dataclass of its settings with a few verbs. Trainings, cards and commands know nothing else about it."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Player
from comad.types import PRNGKey, Spec

State = TypeVar("State")


@runtime_checkable
class Trainer(Protocol[State]):
    """Learns to play one world by playing it."""

    @property
    def steps(self) -> int:
        """Environment steps in all."""
        ...

    @property
    def iterations(self) -> int:
        """Rounds of playing and learning in all."""
        ...

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of one round."""
        ...

    def init(self, env: Env[Any] | HostEnv[Any], key: PRNGKey) -> State:
        """Everything a training is, with the rounds made so far as ``iteration``; saved and loaded whole, it goes on in the same bits."""
        ...

    def begin_from(self, state: State, team: Any) -> State:
        """A fresh state that has the weights of another team, or has it for a guide."""
        ...

    def advance(self, env: Env[Any] | HostEnv[Any], state: State, iterations: int) -> tuple[State, Any]:
        """Play and learn for a number of rounds; also the mean loss. The state that was given is used up."""
        ...

    def team(self, state: State) -> Any:
        """The weights that play, as they are kept and shipped."""
        ...

    def blank(self, spec: Spec) -> Any:
        """The shapes of a team's weights."""
        ...

    def player(self, team: Any, spec: Spec) -> Player:
        """A team at its best."""
        ...
