"""EWC: elastic weight consolidation. Weights that mattered for earlier tasks are held, each as firmly as it mattered.

    penalty = strength * sum_j fisher_j (theta_j - theta*_j)^2

theta* are the weights after the newest finished task, fisher the sum over finished tasks of the mean squared slope of the log-probability
of actions drawn from the policy. Kirkpatrick et al., 2017; settings as in Continual World (Wolczyk et al., 2021).
"""

from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from comad.methods import plain, single
from comad.methods.base import Logs
from comad.methods.omiga import acting
from comad.methods.plain import Learner, PlainActor, PlainState
from comad.ranges import Strength, ranged
from comad.types import Batch, PRNGKey, Spec, Stream


class Consolidated(eqx.Module):
    """What earlier tasks leave behind."""

    importance: PlainActor
    """Per weight, summed over tasks."""
    anchor: PlainActor
    """The actor after the newest finished task."""


@dataclass(frozen=True)
@ranged
class Ewc:
    """Fine-tunes one network, holding weights as firmly as they mattered for earlier tasks."""

    learner: Learner = field(default_factory=Learner)
    """The offline learner."""
    strength: Strength = 1e4
    """How firmly weights are held."""
    smallest_importance: Strength = 1e-5
    """Even weights that did not matter are held a little."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> PlainState:
        """Fresh networks; nothing has mattered yet."""
        state = self.learner.create(key, specs[0])
        actor = state.active.actor
        return replace(state, kept=Consolidated(jax.tree.map(jnp.zeros_like, actor), actor))

    def update(self, state: PlainState, batch: Batch, key: PRNGKey) -> tuple[PlainState, Logs]:
        """One gradient step under the penalty."""
        kept: Consolidated = state.kept

        def hold(gradient: PlainActor, actor: PlainActor) -> PlainActor:
            def pull(slope: Array, weight: Array, importance: Array, anchor: Array) -> Array:
                return slope + 2.0 * self.strength * importance * (weight - anchor)

            return jax.tree.map(pull, gradient, actor, kept.importance, kept.anchor)

        return self.learner.update(state, batch, hold)

    def finish(self, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
        """Add up what mattered for this task, and move the anchor."""
        actor = state.active.actor
        added = jax.tree.map(lambda found: jnp.maximum(found, self.smallest_importance), fisher(actor, sample, key))
        return replace(state, kept=Consolidated(jax.tree.map(jnp.add, state.kept.importance, added), actor))

    begin = plain.begin
    route = single.route
    describe = single.describe
    start = plain.start
    act = plain.act


def fisher(actor: PlainActor, sample: Batch, key: PRNGKey) -> PlainActor:
    """The diagonal of the Fisher information, per decision of an agent.

    Actions are drawn from the policy for every agent at every step. The slope of a whole row's log-probability is squared: products of
    different decisions vanish on average, because each was drawn by itself.
    """
    view = actor.trunk.look(sample)
    no_skill = jnp.zeros((*view.history.shape[:-1], 0))
    drawn = actor.head.sample(view, no_skill, sample.available, key)

    def row_log_probability(actor: PlainActor, row: Batch) -> Array:
        seen = actor.trunk.look(row)
        log_probability = actor.head.log_probability(seen, no_skill[:1], row)
        return jnp.where(acting(row), log_probability, 0.0).sum()

    def row_squared(row: Batch) -> PlainActor:
        alone = jax.tree.map(lambda leaf: leaf[None], row)
        return jax.tree.map(jnp.square, jax.grad(row_log_probability)(actor, alone))

    squared = jax.lax.map(row_squared, replace(sample, actions=drawn))
    return jax.tree.map(lambda leaf: leaf.sum(0) / jnp.maximum(acting(sample).sum(), 1), squared)
