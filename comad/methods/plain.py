"""Plain OMIGA: an actor without skills, with one head or several, on OMIGA's critics. All that the continual baselines share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from comad.methods import descent, omiga
from comad.methods.base import Logs, left_to_the_world, unless_told
from comad.methods.omiga import Critics, acting, bounded, masked_mean
from comad.networks.critics import ActionValue, LinearMixer, StateValue
from comad.networks.heads import create_heads, pick, put
from comad.networks.layers import Draws, initialize
from comad.networks.policy import ActionHead, Trunk
from comad.ranges import LearningRate, Scale, Share, Spread, ranged
from comad.types import Actions, Batch, PRNGKey, Spec, Stream, Tokens


class PlainActor(eqx.Module):
    """A trunk, and a head or a stack of them."""

    trunk: Trunk
    head: ActionHead


class PlainWeights(eqx.Module):
    """All that gradients move, in three groups whose gradients are clipped each by itself."""

    actor: PlainActor
    critic: tuple[ActionValue, LinearMixer]
    value: StateValue

    @property
    def critics(self) -> Critics:
        """Both groups of critics."""
        return Critics(*self.critic, self.value)


class PlainState(eqx.Module):
    """Everything that plain OMIGA is."""

    weights: PlainWeights
    """With heads stacked."""
    targets: Critics
    optimizer: descent.Optimizer
    head: Int[Array, ""]
    """The head that learns."""
    task: Int[Array, ""]
    kept: Any = None
    """What a method keeps of earlier tasks."""

    @property
    def active(self) -> PlainWeights:
        """What is learned now: one head in place of the stack, so that nothing can touch the others."""
        return replace(self.weights, actor=replace(self.weights.actor, head=pick(self.weights.actor.head, self.head)))


Penalty = Callable[[PlainActor, PlainActor], PlainActor]
"""From the gradient and the actor to a gradient with a penalty in it."""


@dataclass(frozen=True)
@ranged
class Learner:
    """Settings of plain OMIGA, and what it does with them."""

    learning_rate: LearningRate = 5e-4
    """Of AdamW, for all groups."""
    weight_decay: Share = 1e-3
    """Of AdamW."""
    clip: Scale = 1.0
    """Largest norm of each group's gradient."""
    discount: Share = 0.99
    """Worth of a reward one step later."""
    target_rate: Share = 0.005
    """Share of the online critics that flows into their targets per update."""
    temperature: Scale = 10.0
    """Alpha: how closely to follow what was recorded."""
    critic_jolt: Spread = 0.01
    """How far each critic network is moved at the start of a task."""
    recurrent: bool | None = left_to_the_world()
    """Whether agents remember; by default they do, but not where actions are vectors and a moment tells how everything moves."""

    def create(self, key: PRNGKey, spec: Spec, heads: int = 1) -> PlainState:
        """Fresh networks with that many heads."""
        shared_key, head_key = jax.random.split(key)

        def shared(draws: Draws) -> tuple[Trunk, Critics]:
            return Trunk.create(draws, spec, unless_told(self, "recurrent", spec)), Critics.create(draws, spec)

        trunk, critics = initialize(shared, shared_key)
        actor = PlainActor(trunk, create_heads(partial(ActionHead.create, spec=spec), head_key, heads))
        weights = PlainWeights(actor, (critics.q, critics.mixer), critics.v)
        state = PlainState(weights, critics, None, jnp.int32(0), jnp.int32(0))
        return replace(state, optimizer=descent.fresh(state.active))

    def switch(self, state: PlainState, task: Int[Array, ""], head: Int[Array, ""], key: PRNGKey) -> PlainState:
        """A task begins: choose its head, jolt the critics, forget the optimizer's momentum."""
        critics = omiga.unsettle(state.weights.critics, jnp.where(task > 0, self.critic_jolt, 0.0), key)
        return replace(
            state,
            weights=replace(state.weights, critic=(critics.q, critics.mixer), value=critics.v),
            targets=critics,
            optimizer=jax.tree.map(jnp.zeros_like, state.optimizer),
            head=jnp.asarray(head, jnp.int32),
            task=jnp.asarray(task, jnp.int32),
        )

    def update(self, state: PlainState, batch: Batch, penalize: Penalty | None = None) -> tuple[PlainState, Logs]:
        """One step of all groups; of the heads only the active one moves.

        Args:
            state: before.
            batch: what was recorded.
            penalize: adds the gradient of a penalty to the actor's, given the actor, before it is clipped.
        """
        active = state.active
        gradient, logs = jax.grad(self.loss, has_aux=True)(active, state.targets, batch)
        actor = gradient.actor if penalize is None else penalize(gradient.actor, active.actor)
        clipped, norms = zip(*(descent.clip(group, self.clip) for group in (actor, gradient.critic, gradient.value)), strict=True)
        moved, optimizer = descent.descend(active, PlainWeights(*clipped), state.optimizer, self.learning_rate, self.weight_decay)
        targets = optax.incremental_update(moved.critics, state.targets, self.target_rate)
        stack = replace(moved.actor, head=put(state.weights.actor.head, state.head, moved.actor.head))
        logs = {**logs, **dict(zip(("gradient_actor", "gradient_critic", "gradient_value"), norms, strict=True))}
        return replace(state, weights=replace(moved, actor=stack), targets=targets, optimizer=optimizer), logs

    def loss(self, weights: PlainWeights, targets: Critics, batch: Batch) -> tuple[Float[Array, ""], Logs]:
        """The sum of all objectives; no two of them share a weight."""
        q_loss, v_loss, exponent = omiga.critic_losses(weights.critics, targets, batch, self.temperature, self.discount)
        now = batch.acted
        view, valid = weights.actor.trunk.look(now), acting(now)
        no_skill = jnp.zeros((*view.history.shape[:-1], 0))
        log_probability, hit = weights.actor.head.judge(view, no_skill, now)
        weight = jnp.exp(bounded(exponent))
        policy_loss = -masked_mean(weight * log_probability, valid)
        logs = {
            "q_loss": q_loss,
            "v_loss": v_loss,
            "policy_loss": policy_loss,
            "weight": masked_mean(weight, valid),
            "weight_smallest": jnp.where(valid, weight, jnp.inf).min(),
            "weight_largest": jnp.where(valid, weight, 0.0).max(),
            "log_probability": masked_mean(log_probability, valid),
        }
        if hit is not None:
            logs["accuracy"] = masked_mean(hit.astype(float), valid)
        return q_loss + v_loss + policy_loss, jax.lax.stop_gradient(logs)


@runtime_checkable
class Fitted(Protocol):
    """A method that is fitted by plain OMIGA. The functions below are its verbs, where it has no better ones of its own."""

    @property
    def learner(self) -> Learner:
        """The offline learner."""
        ...


def init(method: Fitted, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> PlainState:
    """Fresh networks with one head."""
    return method.learner.create(key, specs[0])


def begin(method: Fitted, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
    """Jolt the critics, forget the optimizer's momentum."""
    return method.learner.switch(state, task, jnp.int32(0), key)


def update(method: Fitted, state: PlainState, batch: Batch, key: PRNGKey) -> tuple[PlainState, Logs]:
    """One gradient step."""
    return method.learner.update(state, batch)


def start(method: Fitted, state: PlainState, num_agents: int) -> Float[Array, "agent size"]:
    """Empty memory."""
    return state.weights.actor.trunk.start(num_agents)


def act(
    method: Fitted,
    state: PlainState,
    memory: Float[Array, "agent size"],
    tokens: Tokens,
    available: Bool[Array, "agent action"],
    head: Int[Array, ""],
    greedy: Bool[Array, ""],
    key: PRNGKey,
) -> tuple[Actions, Float[Array, "agent size"]]:
    """An action from one's own history."""
    actor = state.weights.actor
    moment = jax.tree.map(lambda leaf: leaf[None, None], tokens)
    view, following = actor.trunk(memory[None], moment, jnp.zeros((1, 1), bool))
    chosen, possible = pick(actor.head, head), available[None, None]
    no_skill = jnp.zeros((*view.history.shape[:-1], 0))
    actions = jnp.where(greedy, chosen.mode(view, no_skill, possible), chosen.sample(view, no_skill, possible, key))
    return actions[0, 0], following[0]
