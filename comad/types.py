"""The nouns that every stage speaks: what a world shows, what a team does, which tasks follow each other.

Axes are always ordered ``[seed, batch, time, agent, feature]``; a noun defined here carries whatever leading axes its user needs.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from comad import pieces
from comad.errors import UserError
from comad.pieces import piece_by_piece
from comad.ranges import Nats, Updates, ranged
from comad.repeats import spread

PRNGKey = Key[Array, ""]
Actions = Int[Array, "*batch agent"] | Float[Array, "*batch agent component"]
Metric = Literal["return", "success"]
"""The outcome of an episode that counts."""

ID_BITS = 5
"""Bits of an agent's number in its own token: teams of up to 32."""


@dataclass(frozen=True)
class Feature:
    """One number of a token: its name, and what a value of one stands for."""

    name: str
    unit: float = 1.0
    """``value * unit`` is the quantity in the world's own units: cells, levels, health."""
    integral: bool = False
    """The quantity in the world's own units is a small whole number, so a byte holds it exactly."""

    @property
    def is_touch(self) -> bool:
        """A contact, going by its name: exactly zero but for moments, and rough."""
        return not {"torque", "force"}.isdisjoint(self.name.split())

    @property
    def is_mark(self) -> bool:
        """A yes or no, or a way, and no quantity, going by its first word: what a unit is or does."""
        return self.name.split()[0] in {"is", "moves", "attacks"}

    @property
    def scale(self) -> np.float32:
        """What a quantity in the world's own units is multiplied by.

        Worlds and datasets both multiply by this very number: compilers turn divisions into multiplications, NumPy does not, and
        the last bit would differ.
        """
        return np.float32(1.0) / np.float32(self.unit)


@dataclass(frozen=True)
class Discrete:
    """Actions by number: first the ``base`` ones, then, if ``targeted`` has a name, one per target."""

    base: tuple[str, ...]
    targeted: str = ""

    def names(self, num_targets: int) -> tuple[str, ...]:
        """Every action's name, in the order of their numbers."""
        aimed = tuple(f"{self.targeted} {target}" for target in range(num_targets)) if self.targeted else ()
        return self.base + aimed


@dataclass(frozen=True)
class Continuous:
    """Actions as vectors in [-1, 1], one component per name."""

    components: tuple[str, ...]


@dataclass(frozen=True)
class Spec:
    """Everything about a world that shapes arrays, names features or identifies its rules. Hashable, so static under ``jit``."""

    env: str
    """The name that makes this world again, such as ``cn-4``."""
    version: int
    """Grows whenever the same actions from the same state no longer lead to the same next state or tokens."""
    rules: str
    """The world's family, version and settings as canonical JSON: equal rules, equal worlds."""
    num_agents: int
    num_targets: int
    own: tuple[Feature, ...]
    ally: tuple[Feature, ...]
    target: tuple[Feature, ...]
    state_agent: tuple[Feature, ...]
    state_target: tuple[Feature, ...]
    context: tuple[Feature, ...]
    actions: Discrete | Continuous
    limit: int
    """Steps after which an episode ends by itself."""
    full_view: bool = False
    """Every agent sees all, in the state's own features: observations are then a re-ordering of the state (`tokens.full_view`)."""
    view: str = ""
    """The name of the function in `envs.VIEWS` that tells what agents see from the state alone, if they do not see all of it."""
    metric: Metric = "return"
    """Which outcome of an episode tells how good a team is: its return, or whether it was a success."""
    full_return: float = 1.0
    """The return that counts as a score of one; scores are cut to [0, 1]."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_agents <= 2**ID_BITS:
            raise UserError(f"{self.env}: a team has 1 to {2**ID_BITS} agents, not {self.num_agents}")

    @property
    def continuous(self) -> bool:
        """Whether actions are vectors: bodies that move, whose speeds tell what just happened and whose episodes are long."""
        return isinstance(self.actions, Continuous)

    @property
    def shape(self) -> "Spec":
        """All that shapes arrays: worlds that differ in name and rules only share their compiled programs."""
        return dataclasses.replace(self, env="", version=0, rules="")

    @property
    def seen_in_state(self) -> bool:
        """Whether what agents see follows from the state (`envs.look`), so that nobody need keep it."""
        return self.full_view or bool(self.view)

    @property
    def rules_hash(self) -> str:
        """A short name for the rules."""
        return hashlib.sha256(self.rules.encode()).hexdigest()[:16]

    @property
    def num_actions(self) -> int:
        """Columns of the availability mask of a discrete world."""
        if isinstance(self.actions, Continuous):
            return 0
        return len(self.actions.base) + (self.num_targets if self.actions.targeted else 0)

    @property
    def aims(self) -> bool:
        """Whether some actions are aimed at targets."""
        return isinstance(self.actions, Discrete) and bool(self.actions.targeted)

    @property
    def last_action_size(self) -> int:
        """Numbers that tell the last action inside the own token: base actions one-hot and one for any aimed action."""
        if isinstance(self.actions, Continuous):
            return len(self.actions.components)
        return len(self.actions.base) + bool(self.actions.targeted)

    @property
    def own_size(self) -> int:
        """Width of the own token as networks see it, with the agent's number and last action (`tokens.complete`)."""
        return len(self.own) + ID_BITS + self.last_action_size

    @property
    def ally_size(self) -> int:
        """Width of an ally token."""
        return len(self.ally)

    @property
    def target_size(self) -> int:
        """Width of a target token as networks see it, with the bit that says the agent aimed at it last."""
        return len(self.target) + self.aims


class Tokens(eqx.Module):
    """What each agent sees: itself, its allies in index order without itself, and the targets. Unseen entities are zero and masked."""

    own: Float[Array, "*batch agent own"]
    allies: Float[Array, "*batch agent others ally"]
    targets: Float[Array, "*batch agent target feature"]
    ally_seen: Bool[Array, "*batch agent others"]
    target_seen: Bool[Array, "*batch agent target"]

    @property
    def entities(self) -> int:
        """How many things an agent may look at: itself, allies, targets."""
        return 1 + self.allies.shape[-2] + self.targets.shape[-2]


class StateTokens(eqx.Module):
    """The whole situation, for the centralized parts of learning. Absent entities are zero and masked."""

    agents: Float[Array, "*batch agent feature"]
    targets: Float[Array, "*batch target feature2"]
    context: Float[Array, "*batch context"]
    agent_present: Bool[Array, "*batch agent"]
    target_present: Bool[Array, "*batch target"]


class Step(eqx.Module):
    """What a world shows after a reset or a step."""

    tokens: Tokens
    state: StateTokens
    available: Bool[Array, "*batch agent action"]
    reward: Float[Array, "*batch"]
    """Team reward for the step that led here; zero after a reset."""
    ended: Bool[Array, "*batch"]
    """The episode is over, for whatever reason."""
    terminated: Bool[Array, "*batch"]
    """It is over and no value lies beyond (a plain time limit that a learner should look past leaves this false)."""
    success: Bool[Array, "*batch"]
    """The team has done what the task asks."""


class Moments(eqx.Module):
    """What was seen and done at some moments, each by itself."""

    tokens: Tokens
    """Completed: with the agents' numbers and last actions."""
    state: StateTokens
    available: Bool[Array, "*batch agent action"]
    actions: Actions


Made = TypeVar("Made")
Network = TypeVar("Network")
Lighter = TypeVar("Lighter", bound=Callable[..., Any])
Sight: TypeAlias = Callable[[Network, Tokens, Bool[Array, "*batch agent action"], Actions], Made]


class Batch(eqx.Module):
    """Recorded moments to learn from: rows of whole episodes end to end. What followed a step is the next moment of its row."""

    tokens: Tokens
    """Completed: with the agents' numbers and last actions."""
    state: StateTokens
    available: Bool[Array, "row time agent action"]
    actions: Int[Array, "row time agent"] | Float[Array, "row time agent component"]
    reward: Float[Array, "row time"]
    terminated: Bool[Array, "row time"]
    """This step ended its episode and no value lies beyond."""
    first: Bool[Array, "row time"]
    """An episode begins here: memory starts afresh."""
    step: Bool[Array, "row time"]
    """An action was taken here: false in an episode's extra last moment and in padding."""
    present: Bool[Array, "row time"]
    """A moment of an episode, not padding."""
    outcome: Float[Array, "row time"]
    """The return of the moment's whole episode, in standard deviations above the mean of the recordings; zero where all are alike."""
    distinct: Moments | None = None
    """Where many moments look the same: those that do not, as rows of one."""
    place: Int[Array, "row time"] | None = None
    """And which of them each moment looks like."""

    def once(self, function: Callable[[Moments], Made]) -> Made:
        """What a function of single moments makes of every one of them; where many look the same, it is computed once for these."""
        return self.hand(function(self.moments))

    def each(self, function: Sight[Network, Made], network: Network, apart: bool, lighter: Sight[Network, Made] | None = None) -> Made:
        """What a network makes of every agent's own sight.

        Args:
            function: of the network and of what agents see, can do and did.
            network: whose gradient is wanted.
            apart: actions aim at targets, which everybody sees for himself; then a few agents are seen to at a time.
            lighter: makes the same of agents who can aim at few targets.
        """
        if not apart or self.distinct:
            return self.once(lambda moments: function(network, moments.tokens, moments.available, moments.actions))
        recorded = self.tokens, self.available, self.actions
        return piece_by_piece(function, network, (), recorded, self.there, self.tokens.entities, lighter and self.lightened(lighter))

    def lightened(self, lighter: Lighter) -> tuple[Lighter, Int[Array, "row time agent"]] | None:
        """What does for few targets, with how many each agent can aim at; nothing, if there are no more than few."""
        if self.tokens.targets.shape[-2] <= pieces.FEW:
            return None
        return lighter, aimable(self.tokens, self.available).sum(-1)

    @property
    def there(self) -> Bool[Array, "row time agent"]:
        """Who of the team is, at moments that are not padding."""
        return self.present[..., None] & self.state.agent_present

    @property
    def moments(self) -> Moments:
        """Those that look different, as rows of one, or all of them where few look the same."""
        return self.distinct or Moments(self.tokens, self.state, self.available, self.actions)

    def hand(self, made: Made) -> Made:
        """What was made of `moments`, for every moment."""
        if self.place is None:
            return made
        place = self.place
        return jax.tree.map(lambda leaf: spread(leaf[:, 0], place), made)

    @property
    def continuous(self) -> bool:
        """Whether actions are vectors."""
        return bool(np.issubdtype(self.actions.dtype, np.floating))

    @property
    def acted(self) -> "Batch":
        """Without the last moment of every row, which is never a step; of rows of a single step that is half of all there is to compute."""
        return self._at(slice(None, -1))

    @property
    def following(self) -> "Batch":
        """Without the first moment of every row: what came after each moment of `acted`."""
        return self._at(slice(1, None))

    def _at(self, times: slice) -> "Batch":
        rows = jax.tree.map(lambda leaf: leaf[:, times], dataclasses.replace(self, distinct=None))
        return dataclasses.replace(rows, distinct=self.distinct)


def aimable(tokens: Tokens, available: Bool[Array, "*batch agent action"]) -> Bool[Array, "*batch agent target"]:
    """Which targets agents can aim at, where actions aim: theirs are the last ones."""
    return available[..., available.shape[-1] - tokens.targets.shape[-2] :]


@dataclass(frozen=True)
class Task:
    """One task of a stream: the name people read and the world it is played in."""

    name: str
    env: str


@dataclass(frozen=True)
@ranged
class Stream:
    """Tasks in the order in which they are learned, with what the paper fixes per stream."""

    name: str
    tasks: tuple[Task, ...]
    updates: Updates
    """Gradient updates per task in the paper's protocol."""
    threshold: Nats
    """d0: the density score above which an old head is used again."""
    metric: Metric
    """Which outcome of an episode is the score in [0, 1]."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise UserError(f"stream {self.name!r} has no task; give at least one, for instance cn-2")
