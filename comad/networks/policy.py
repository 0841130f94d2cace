"""From what an agent has seen to what it does: the trunk that all heads share, and the heads that decide."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad.networks.attention import WIDTH, Few, ObservationEncoder, among_all, only, the_few
from comad.networks.layers import Draws, Gru, Mlp
from comad.pieces import piece_by_piece
from comad.tokens import mask_unavailable
from comad.types import Actions, Batch, Continuous, PRNGKey, Spec, Tokens, aimable

LOG_SPREAD = (-5.0, 2.0)
"""Bounds on the logarithm of a standard deviation."""
MEAN_BOUND = 9.0
"""Bound on the mean of a continuous action before it is squashed."""


class View(eqx.Module):
    """An agent's history in one vector, and its view of each target where actions aim at them."""

    history: Float[Array, "*batch agent width"]
    targets: Float[Array, "*batch agent target width"] | None


class Trunk(eqx.Module):
    """F: what an agent sees, and what it has seen."""

    encoder: ObservationEncoder
    mlp: Mlp
    memory: Gru | None

    @classmethod
    def create(cls, draws: Draws, spec: Spec, recurrent: bool = True, relations: bool = False) -> "Trunk":
        """Fresh weights; without memory a history is its last moment."""
        encoder, mlp = ObservationEncoder.create(draws, spec, relations), Mlp.create(draws, (WIDTH, WIDTH, WIDTH))
        return cls(encoder, mlp, Gru.create(draws, WIDTH, WIDTH) if recurrent else None)

    def start(self, *lead: int) -> Float[Array, "*lead size"]:
        """Memory at the start of an episode."""
        return jnp.zeros((*lead, self.memory.size if self.memory else 0))

    def __call__(
        self, memory: Float[Array, "row agent size"], tokens: Tokens, first: Bool[Array, "row time"]
    ) -> tuple[View, Float[Array, "row agent size"]]:
        """Views at every moment of rows of time, and the memory after them."""
        return self.remember(memory, self.see(tokens), first)

    def look(self, batch: Batch) -> View:
        """Views at every moment of a batch."""
        seen = batch.each(
            lambda trunk, tokens, *_: trunk.see(tokens),
            self,
            self.encoder.aims,
            lighter=lambda trunk, tokens, available, _: trunk.see(tokens, the_few(aimable(tokens, available))),
        )
        return self.remember(self.start(batch.step.shape[0], batch.actions.shape[2]), seen, batch.first)[0]

    def see(self, tokens: Tokens, few: Few | None = None) -> View:
        """Views of single moments, before anything is remembered; of few targets, if these are told."""
        own, targets = self.encoder(tokens, few)
        # Without memory past the layers that a first task has made its own, so that heads of later ones can still learn from what is seen.
        return View(jax.nn.relu(self.mlp(own)) if self.memory else own + self.mlp(own), targets)

    def remember(
        self, memory: Float[Array, "row agent size"], seen: View, first: Bool[Array, "row time"]
    ) -> tuple[View, Float[Array, "row agent size"]]:
        """The same with what was seen before, and the memory after them."""
        if not self.memory:
            return seen, memory
        history, memory = self.memory.over_time(memory, seen.history, first)
        return View(history, seen.targets), memory


class ActionHead(eqx.Module):
    """A policy on top of the trunk, for numbered actions or for vectors.

    Numbered: one logit per base action from the history, one per target from the history and the view of that target. Vectors: a Gaussian
    squashed by tanh.
    """

    base: Mlp
    aimed: Mlp | None
    spec: Spec = eqx.field(static=True)

    @classmethod
    def create(cls, draws: Draws, spec: Spec, skill_size: int = 0, hidden: tuple[int, ...] = (WIDTH, WIDTH)) -> "ActionHead":
        """Fresh weights, with room for a skill beside the history, and hidden layers of these widths."""
        continuous = isinstance(spec.actions, Continuous)
        outputs = 2 * len(spec.actions.components) if isinstance(spec.actions, Continuous) else len(spec.actions.base)
        base = Mlp.create(draws, (WIDTH + skill_size, *hidden, outputs))
        aims = not continuous and spec.aims
        return cls(base, Mlp.create(draws, (2 * WIDTH + skill_size, *hidden, 1)) if aims else None, spec)

    def logits(
        self,
        view: View,
        skill: Float[Array, "*batch agent skill"],
        available: Bool[Array, "*batch agent action"],
        few: Few | None = None,
    ) -> Float[Array, "*batch agent action"]:
        """Unnormalized log-probabilities of numbered actions."""
        features = jnp.concatenate([view.history, skill], axis=-1)
        logits = self.base(features)
        if self.aimed and view.targets is not None:
            at_targets = among_all(few, self.aimed.of_pairs(features, only(few, view.targets)))
            logits = jnp.concatenate([logits, at_targets[..., 0]], axis=-1)
        return mask_unavailable(logits, available)

    def gaussian(self, view: View, skill: Float[Array, "*batch agent skill"]) -> tuple[Array, Array]:
        """Mean and log standard deviation of a vector action before it is squashed."""
        mean, log_spread = jnp.split(self.base(jnp.concatenate([view.history, skill], axis=-1)), 2, axis=-1)
        return jnp.clip(mean, -MEAN_BOUND, MEAN_BOUND), jnp.clip(log_spread, *LOG_SPREAD)

    def judge(
        self, view: View, skill: Float[Array, "row time agent skill"], batch: Batch
    ) -> tuple[Float[Array, "row time agent"], Bool[Array, "row time agent"] | None]:
        """Log-probability (or log-density) of a batch's actions and, for numbered ones, whether no other is likelier."""
        if isinstance(self.spec.actions, Continuous):
            return squashed_log_density(batch.actions, *self.gaussian(view, skill)), None
        recorded = batch.available, batch.actions
        if not self.aimed:
            taken, best = self.compare(view, skill, *recorded)
        else:
            lighter = batch.lightened(ActionHead.compare_few)
            taken, best = piece_by_piece(ActionHead.compare, self, (view, skill), recorded, batch.there, batch.available.shape[-1], lighter)
        return taken, taken >= best

    def compare(
        self,
        view: View,
        skill: Float[Array, "*batch agent skill"],
        available: Bool[Array, "*batch agent action"],
        actions: Actions,
        few: Few | None = None,
    ) -> tuple[Float[Array, "*batch agent"], Float[Array, "*batch agent"]]:
        """Log-probabilities of numbered actions, and of the likeliest ones."""
        scores = jax.nn.log_softmax(self.logits(view, skill, available, few))
        return gather_last(scores, actions), scores.max(-1)

    def compare_few(
        self, view: View, skill: Float[Array, "*batch agent skill"], available: Bool[Array, "*batch agent action"], actions: Actions
    ) -> tuple[Float[Array, "*batch agent"], Float[Array, "*batch agent"]]:
        """The same of agents who can aim at few targets."""
        num_targets = 0 if view.targets is None else view.targets.shape[-2]
        return self.compare(view, skill, available, actions, the_few(available[..., available.shape[-1] - num_targets :]))

    def log_probability(self, view: View, skill: Float[Array, "row time agent skill"], batch: Batch) -> Float[Array, "row time agent"]:
        """Log-probability (or log-density) of a batch's actions."""
        return self.judge(view, skill, batch)[0]

    def relative_log_probability(
        self, view: View, skill: Float[Array, "row time agent skill"], batch: Batch
    ) -> Float[Array, "row time agent"]:
        """Log-probability of a batch's actions; of vectors, whose density has no bounds, between that of chance and zero.

        Zero is said of the likeliest vector (before tanh). How far off others are in small spreads says little.
        """
        if isinstance(self.spec.actions, Continuous):
            mean, log_spread = self.gaussian(view, skill)
            beside = -0.5 * jnp.square((before_squashing(batch.actions) - mean) * jnp.exp(-log_spread)).sum(-1)
            return jnp.maximum(beside, -batch.actions.shape[-1] * jnp.log(2.0))
        return self.log_probability(view, skill, batch)

    def sample(
        self, view: View, skill: Float[Array, "*batch agent skill"], available: Bool[Array, "*batch agent action"], key: PRNGKey
    ) -> Actions:
        """Draw actions."""
        if isinstance(self.spec.actions, Continuous):
            mean, log_spread = self.gaussian(view, skill)
            return jnp.tanh(mean + jnp.exp(log_spread) * jax.random.normal(key, mean.shape))
        return jax.random.categorical(key, self.logits(view, skill, available))

    def mode(self, view: View, skill: Float[Array, "*batch agent skill"], available: Bool[Array, "*batch agent action"]) -> Actions:
        """The likeliest actions."""
        if isinstance(self.spec.actions, Continuous):
            return jnp.tanh(self.gaussian(view, skill)[0])
        return self.logits(view, skill, available).argmax(-1)


def squashed_log_density(
    actions: Float[Array, "*batch component"], mean: Float[Array, "*batch component"], log_spread: Float[Array, "*batch component"]
) -> Float[Array, "*batch"]:
    """Log-density of a tanh-squashed Gaussian at actions in [-1, 1]."""
    return squashed_log_density_before(before_squashing(actions), mean, log_spread)


def before_squashing(actions: Float[Array, "*batch component"]) -> Float[Array, "*batch component"]:
    """What tanh made actions of, short of its ends."""
    edge = 1.0 - 1e-6
    return jnp.arctanh(jnp.clip(actions, -edge, edge))


def squashed_log_density_before(
    raw: Float[Array, "*batch component"], mean: Float[Array, "*batch component"], log_spread: Float[Array, "*batch component"]
) -> Float[Array, "*batch"]:
    """The same, from actions as they were before tanh."""
    gaussian = -0.5 * jnp.square((raw - mean) * jnp.exp(-log_spread)) - log_spread - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(x)^2), written so that it stays finite for large x.
    squashing = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
    return (gaussian - squashing).sum(-1)


def gather_last(values: Float[Array, "*batch choice"], index: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
    """The value at an index of the last axis."""
    return jnp.take_along_axis(values, index[..., None], axis=-1)[..., 0]
