"""What a method is: a frozen dataclass of its settings with pure verbs. The training loop knows nothing else about it."""

from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Bool, Float, Int

from comad.continual.schedules import DataSchedule
from comad.types import Actions, Batch, PRNGKey, Spec, StateTokens, Stream, Tokens

State = TypeVar("State")
RULE = "rule"
"""Where the metadata of a setting that is left to the world hold how that decides."""
Logs = dict[str, Array]
"""Numbers worth keeping of one update."""


@runtime_checkable
class Method(Protocol[State]):
    """Learns the tasks of a stream one after another."""

    @property
    def data(self) -> DataSchedule:
        """Which data each update learns from."""
        ...

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> State:
        """Everything the method will ever need, at its final size; ``updates`` is the number per task."""
        ...

    def begin(self, state: State, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> State:
        """A task starts; ``sample`` shows some of its data."""
        ...

    def update(self, state: State, batch: Batch, key: PRNGKey) -> tuple[State, Logs]:
        """One gradient step."""
        ...

    def finish(self, state: State, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> State:
        """A task ends."""
        ...

    def route(self, state: State, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """The head that is to play a task."""
        ...

    def start(self, state: State, num_agents: int) -> Any:
        """The memory with which a team begins an episode."""
        ...

    def act(
        self,
        state: State,
        memory: Any,
        tokens: Tokens,
        available: Bool[Array, "agent action"],
        head: Int[Array, ""],
        greedy: Bool[Array, ""],
        key: PRNGKey,
    ) -> tuple[Actions, Any]:
        """What each agent does, from its own tokens and its own memory: the likeliest if greedy, else drawn."""
        ...

    def describe(self, state: State) -> dict[str, Array]:
        """What a person may want to know of the heads, by name: which one is active, how they were chosen. Empty without heads."""
        ...


@runtime_checkable
class Recognizes(Protocol):
    """A method that can also tell which of its heads knows a situation."""

    def recognize(self, state: Any, situations: StateTokens) -> Int[Array, ""]:
        """The head to which situations, of whatever leading axes, are most familiar."""
        ...

    def familiarity(self, state: Any, situations: StateTokens) -> Float[Array, "head *batch"]:
        """Scores on one scale; those of heads that were never opened are minus infinity."""
        ...


@runtime_checkable
class Portrays(Recognizes, Protocol):
    """A method that can also show what it has learned: its skills, and what each head counts for where."""

    def inferred_skills(self, state: Any, batch: Batch, head: Int[Array, ""]) -> Float[Array, "row time agent size"]:
        """The skill that every agent's recorded history suggests to a head; of size 0 if there are no skills."""
        ...

    def reuse_weights(self, state: Any, situations: StateTokens) -> Float[Array, "head *batch"]:
        """How much every head has to say in situations; those of the opened heads sum to one, the others are zero."""
        ...


def numbered(world: Spec | Batch) -> bool:
    """Whether actions are numbered, and not vectors."""
    return not world.continuous


def hidden(world: Spec) -> bool:
    """Whether actions are numbered, and agents do not see all there is."""
    return numbered(world) and not world.full_view


def unnumbered(world: Spec | Batch) -> bool:
    """Whether actions are vectors."""
    return world.continuous


def left_to_the_world(rule: Callable[[Any], bool] = numbered, metadata: Mapping[str, Any] | None = None) -> Any:
    """A setting that is on in worlds of a kind, and off in others, unless told otherwise."""
    return field(default=None, metadata={RULE: rule, **(metadata or {})})


def unless_told(method: Any, name: str, world: Spec | Batch) -> bool:
    """What a setting is that may have been left to the world."""
    setting = getattr(method, name)
    if setting is not None:
        return setting
    return next(entry.metadata[RULE] for entry in fields(method) if entry.name == name)(world)


def settled(method: Any, spec: Spec) -> Any:
    """A method with nothing left to the world: runs are known by what was decided, not by what was left open."""
    changes: dict[str, Any] = {}
    for entry in fields(method):
        if RULE in entry.metadata:
            changes[entry.name] = unless_told(method, entry.name, spec)
        elif is_dataclass(value := getattr(method, entry.name)):
            changes[entry.name] = settled(value, spec)
    return replace(method, **changes)
