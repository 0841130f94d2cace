"""What the trainers for vectors of actions share: what a team sees together, its networks, and returns over a few steps."""

import itertools
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from comad.errors import UserError
from comad.networks.layers import Draws, LayerNorm, Linear
from comad.types import Actions, Continuous, Feature, PRNGKey, Spec, Tokens

Tree = TypeVar("Tree")

FARTHEST = 10.0
"""Spreads from the mean beyond which a number is cut."""


def kept(features: Sequence[Feature]) -> np.ndarray:
    """Where the features stand that a team looks at: it does without contacts, for what they tell shows in the speeds a moment later."""
    return np.array([place for place, feature in enumerate(features) if not feature.is_touch], int)


def num_seen(spec: Spec) -> int:
    """Numbers that a team sees together."""
    return spec.num_agents * len(kept(spec.state_agent)) + spec.num_targets * len(kept(spec.state_target))


def observe(spec: Spec, tokens: Tokens) -> Float[Array, "*batch number"]:
    """What a team sees together: each agent's own part, with which its token begins, and the targets as the first agent sees them."""
    own = tokens.own[..., kept(spec.state_agent)]
    targets = tokens.targets[..., 0, :, :][..., kept(spec.state_target)]
    return jnp.concatenate([part.reshape(*part.shape[:-2], -1) for part in (own, targets)], axis=-1)


def num_motors(spec: Spec) -> int:
    """Components of all agents' actions together."""
    if not isinstance(spec.actions, Continuous):
        raise UserError(f"{spec.env}: this trainer learns worlds whose actions are vectors, such as ant-reward-0")
    return spec.num_agents * len(spec.actions.components)


class Normalizer(eqx.Module):
    """Mean and variance of all that was seen so far."""

    mean: Float[Array, " number"]
    variance: Float[Array, " number"]
    count: Float[Array, ""]

    @classmethod
    def create(cls, size: int) -> "Normalizer":
        """Of nothing yet."""
        return cls(jnp.zeros(size), jnp.ones(size), jnp.float32(1e-4))

    def add(self, seen: Float[Array, "row number"]) -> "Normalizer":
        """With more rows."""
        count, rows = self.count + len(seen), len(seen)
        gap = seen.mean(0) - self.mean
        squares = self.variance * self.count + seen.var(0) * rows + jnp.square(gap) * self.count * rows / count
        return Normalizer(self.mean + gap * rows / count, squares / count, count)

    def __call__(self, seen: Float[Array, "*batch number"]) -> Float[Array, "*batch number"]:
        """Numbers around zero, of about one in size."""
        lead = (1,) * (seen.ndim - 1)
        spread = jnp.sqrt(self.variance) + 1e-4
        return jnp.clip((seen - self.mean.reshape(*lead, -1)) / spread.reshape(*lead, -1), -FARTHEST, FARTHEST)


class Tower(eqx.Module):
    """Affine maps with layer normalization and ReLU between them."""

    layers: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...]

    @classmethod
    def create(cls, draws: Draws, sizes: Sequence[int]) -> "Tower":
        """One layer per pair of neighboring sizes."""
        layers = tuple(Linear.create(draws, *pair) for pair in itertools.pairwise(sizes))
        return cls(layers, tuple(LayerNorm.create(size) for size in sizes[1:-1]))

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """Apply to the last axis."""
        for layer, norm in zip(self.layers[:-1], self.norms, strict=True):
            x = jax.nn.relu(norm(layer(x)))
        return self.layers[-1](x)


class Twins(eqx.Module):
    """Two critics of what everybody does, of whom the more pessimistic is believed."""

    first: Tower
    second: Tower

    @classmethod
    def create(cls, draws: Draws, spec: Spec, width: int) -> "Twins":
        """Fresh weights, each its own."""
        sizes = (num_seen(spec) + num_motors(spec), width, width, 1)
        return cls(Tower.create(draws, sizes), Tower.create(draws, sizes))

    def __call__(self, seen: Float[Array, "row number"], actions: Float[Array, "row motor"]) -> tuple[Array, Array]:
        """Both values [row]."""
        both = jnp.concatenate([seen, actions], axis=-1)
        return self.first(both)[..., 0], self.second(both)[..., 0]

    def least(self, seen: Float[Array, "row number"], actions: Float[Array, "row motor"]) -> Float[Array, " row"]:
        """The lower value."""
        return jnp.minimum(*self(seen, actions))

    def first_value(self, seen: Float[Array, "row number"], actions: Float[Array, "row motor"]) -> Float[Array, " row"]:
        """What the first alone says."""
        return self.first(jnp.concatenate([seen, actions], axis=-1))[..., 0]

    def follow(self, batch: "Transition", goal: Float[Array, " row"], optimizer: Any, rate: Float[Array, ""]) -> tuple["Twins", Any, Array]:
        """One step towards a goal; also what Adam remembers then, and how far it was."""
        loss, slope = jax.value_and_grad(lambda critics: critics.distance(batch.seen, batch.actions, goal, batch.counts))(self)
        return *descend(self, slope, optimizer, rate), loss

    def distance(
        self, seen: Float[Array, "row number"], actions: Float[Array, "row motor"], goal: Float[Array, " row"], counts: Bool[Array, " row"]
    ) -> Float[Array, ""]:
        """Mean squared distance of both values from a goal, over the rows that count."""
        squares = sum(jnp.square(value - goal) for value in self(seen, actions))
        return jnp.where(counts, squares, 0.0).sum() / jnp.maximum(counts.sum(), 1)


class Moment(eqx.Module):
    """One entry of the replay. An episode's last moment is one too, so that value can be looked up there."""

    seen: Float[Array, "*batch number"]
    actions: Float[Array, "*batch motor"]
    reward: Float[Array, "*batch"]
    """For these actions."""
    last: Bool[Array, "*batch"]
    """The episode is over: nothing was done here."""
    terminated: Bool[Array, "*batch"]
    """And no value lies beyond."""


class Transition(eqx.Module):
    """Some steps in one."""

    seen: Float[Array, "row number"]
    actions: Float[Array, "row motor"]
    reward: Float[Array, " row"]
    """Discounted sum over the steps."""
    following: Float[Array, "row number"]
    discount: Float[Array, " row"]
    """What the value of the moment that follows counts for; zero where no value lies beyond."""
    counts: Bool[Array, " row"]
    """False where nothing was done."""


def look_ahead(windows: Moment, discount: float) -> Transition:
    """The first moment of every window with what came of it by the window's last moment, or by the end of the episode.

    A time limit is an end beyond which value lies, so its last moment is worth what any other is.
    """
    steps = windows.last.shape[1] - 1
    going = jnp.cumprod(~windows.last[:, :-1], axis=1)
    taken = going.sum(1)
    worth = discount ** jnp.arange(steps)[None]

    def at_end(values: Array) -> Array:
        index = taken.reshape(-1, *[1] * (values.ndim - 1))
        return jnp.take_along_axis(values, index, axis=1)[:, 0]

    return Transition(
        seen=windows.seen[:, 0],
        actions=windows.actions[:, 0],
        reward=(going * worth * windows.reward[:, :-1]).sum(1),
        following=at_end(windows.seen),
        discount=jnp.where(at_end(windows.terminated), 0.0, discount**taken),
        counts=taken > 0,
    )


def descend(weights: Tree, gradient: Tree, optimizer: Any, rate: Float[Array, ""]) -> tuple[Tree, Any]:
    """One step of Adam."""
    change, optimizer = optax.adam(rate).update(gradient, optimizer, weights)
    return optax.apply_updates(weights, change), optimizer


def falling(rate: float, begin: float, end: float, share: Float[Array, ""]) -> Float[Array, ""]:
    """A learning rate that is constant up to a share of the training, and from there falls linearly to a share of itself."""
    beyond = jnp.clip((share - begin) / max(1.0 - begin, 1e-6), 0.0, 1.0)
    return rate * (1.0 - (1.0 - end) * beyond)


@runtime_checkable
class JointTeam(Protocol):
    """Weights that decide for all agents."""

    def decide(self, seen: Float[Array, "*batch number"]) -> Float[Array, "*batch motor"]:
        """The best actions they know."""
        ...


class JointPlayer(eqx.Module):
    """A team with one mind: actions follow from what its agents see together, and each agent does its own part of them."""

    team: Any
    spec: Spec = eqx.field(static=True)

    def start(self, spec: Spec) -> None:
        """Nothing to remember."""

    def act(self, memory: None, tokens: Tokens, available: Bool[Array, "agent action"], key: PRNGKey) -> tuple[Actions, None]:
        """Always the same in the same situation."""
        return self.team.decide(observe(self.spec, tokens)).reshape(self.spec.num_agents, -1), None


def halved(tree: Tree) -> Tree:
    """Weights in half precision, as they are kept."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float16), tree)


def whole(tree: Tree) -> Tree:
    """Kept weights in single precision, as they play."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)
