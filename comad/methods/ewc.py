"""EWC: elastic weight consolidation. Weights that mattered for earlier tasks may move less.

    penalty = strength * sum_j fisher_j (theta_j - theta*_j)^2

theta* are the actor's weights after the newest finished task. fisher is the sum over finished tasks
of the mean squared gradient of the log-probability of actions sampled from the policy. Kirkpatrick
et al., 2017; settings as in Continual World (Wolczyk et al., 2021).
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from comad.continual.net import Actor, Heads, Logs, Net
from comad.continual.omiga import acting
from comad.continual.optimize import zeros_like
from comad.continual.strategy import State, Strategy
from comad.ranges import Strength, ranged
from comad.types import Batch, PRNGKey, Stream


class Consolidated(eqx.Module):
    """What earlier tasks leave behind."""

    importance: Actor
    """Of every weight, summed over tasks."""
    anchor: Actor
    """The actor after the newest finished task."""


@dataclass(frozen=True)
@ranged
class Ewc(Strategy):
    """Fine-tunes one network, penalizing changes of weights that mattered for earlier tasks."""

    strength: Strength = 1e4
    """Strength of the penalty."""
    smallest_importance: Strength = 1e-5
    """Importance of weights that did not matter."""

    def init(self, heads: Heads, stream: Stream) -> Consolidated:
        """Creates a memory in which nothing has mattered yet."""
        actor = heads.net(0).actor
        return Consolidated(zeros_like(actor), actor)

    def terms(self, net: Net, state: State, batch: Batch, key: PRNGKey) -> tuple[Logs, Logs]:
        """Calculates the penalty."""
        memory: Consolidated = state.memory

        def penalty(importance: Array, weight: Array, anchor: Array) -> Array:
            return (importance * jnp.square(weight - anchor)).sum()

        each = jax.tree.map(penalty, memory.importance, net.actor, memory.anchor)
        return {"penalty": self.strength * sum(jax.tree.leaves(each), jnp.float32(0.0))}, {}

    def finish(self, state: State, sample: Batch, key: PRNGKey) -> Consolidated:
        """Adds what mattered for this task, and moves the anchor."""
        actor = state.net.actor
        found = fisher(actor, sample, key)
        added = jax.tree.map(lambda leaf: jnp.maximum(leaf, self.smallest_importance), found)
        return Consolidated(jax.tree.map(jnp.add, state.memory.importance, added), actor)


def fisher(actor: Actor, sample: Batch, key: PRNGKey) -> Actor:
    """Calculates the diagonal of the Fisher information, per decision of an agent.

    Actions are sampled from the policy for every agent at every step. The gradient of a whole row's
    log-probability is squared: products of different decisions vanish on average, because each was
    sampled by itself. Of skills the prior matters, by what the skill does to the actions.
    """
    view = actor.trunk.look(sample)
    noise = actor.noise(view, jax.random.fold_in(key, 1))
    drawn = actor.head.policy.sample(view, actor.infer(view, noise), sample.available, key)

    def row_log_prob(actor: Actor, row: Batch, noise: Array) -> Array:
        seen = actor.trunk.look(row)
        log_prob = actor.head.policy.log_probability(seen, actor.infer(seen, noise), row)
        return jnp.where(acting(row), log_prob, 0.0).sum()

    def row_squared(row_and_noise: tuple[Batch, Array]) -> Any:
        alone = jax.tree.map(lambda leaf: leaf[None], row_and_noise)
        return jax.tree.map(jnp.square, jax.grad(row_log_prob)(actor, *alone))

    squared = jax.lax.map(row_squared, (replace(sample, actions=drawn), noise))
    decisions = jnp.maximum(acting(sample).sum(), 1)
    return jax.tree.map(lambda leaf: leaf.sum(0) / decisions, squared)
