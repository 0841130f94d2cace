"""The continual learner: OMIGA with an optional skill, on one head at a time.

    L = L_Q + L_V - E[exp(A / alpha + log-weight) log pi(a | history, z)] + KL(q || p) + terms

The strategy says what is added to the log-weight and which terms there are, which head learns and
which one plays. Wang et al., "Offline Multi-Agent Reinforcement Learning with Implicit
Global-to-Local Value Regularization", 2023.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from comad.continual import omiga
from comad.continual.method import left_to_the_world, unless_told
from comad.continual.net import GROUPS, Heads, Logs, Net
from comad.continual.omiga import acting, bounded, masked_mean
from comad.continual.optimize import adamw, clip, fresh, zeros_like
from comad.continual.schedules import DataSchedule, OwnTask
from comad.continual.strategy import Clock, State, Strategy
from comad.networks.skills import Kind
from comad.ranges import LearningRate, Scale, Share, Size, Spread, Strength, ranged
from comad.types import Actions, Batch, PRNGKey, Spec, Stream, Tokens


@dataclass(frozen=True)
@ranged
class Continual:
    """Learns tasks one after another from recorded data."""

    WRITTEN: ClassVar[Mapping[str, str]] = {"critic_perturbation": "critic_jolt"}

    strategy: Strategy = field(default_factory=Strategy)
    """What is done about a stream of tasks."""
    data: DataSchedule = field(default_factory=OwnTask)
    """Which data each update learns from."""
    learning_rate: LearningRate = 5e-4
    """Learning rate of AdamW, for all groups."""
    weight_decay: Share = 1e-3
    """Weight decay of AdamW."""
    clip: Scale = 1.0
    """Largest norm of each group's gradient."""
    discount: Share = 0.99
    """Worth of a reward one step later."""
    target_rate: Share = 0.005
    """Share of the online critics that flows into their targets per update."""
    temperature: Scale = 10.0
    """Alpha: how closely to follow the recorded actions."""
    critic_perturbation: Spread = 0.01
    """Distance by which each critic network is moved at the start of a task."""
    recurrent: bool | None = left_to_the_world()
    """Give agents a recurrent state; by default where actions are discrete."""
    skill: Kind = "none"
    """The kind of skill between an agent's history and its actions."""
    skill_size: Size = 16
    """Dimensions of a skill, or classes."""
    kl_weight: Strength = 1.0
    """Weight of the KL divergence between posterior and prior."""
    kl_into_posterior: bool = True
    """Let the gradient of the KL reach the posterior, so that it copies no action into the skill."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> State:
        """Creates fresh weights with room for all heads that will ever be needed."""
        heads = Heads.create(
            key,
            specs[0],
            capacity=self.strategy.capacity(stream),
            per_head=self.strategy.per_head,
            skill=self.skill,
            skill_size=self.skill_size,
            density=self.strategy.density,
            recurrent=unless_told(self, "recurrent", specs[0]),
        )
        net, clock = heads.net(0), Clock(jnp.int32(0), jnp.int32(0), updates)
        memory = self.strategy.init(heads, stream)
        return State(heads, jnp.int32(0), net.critics, fresh(net), clock, memory)

    def begin(self, state: State, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> State:
        """Begins a task: chooses its head, perturbs the critics, and resets the optimizer."""
        if not self.data.boundaries:
            return state
        clock = Clock(jnp.asarray(task, jnp.int32), jnp.int32(0), state.clock.updates)
        state = self.strategy.begin(replace(state, clock=clock), sample, jax.random.fold_in(key, 1))
        distance = jnp.where(clock.task > 0, self.critic_perturbation, 0.0)
        critics = omiga.unsettle(state.net.critics, distance, key)
        heads = state.heads.write(state.active, state.net.with_critics(critics))
        return replace(state, heads=heads, targets=critics, optimizer=zeros_like(state.optimizer))

    def update(self, state: State, batch: Batch, key: PRNGKey) -> tuple[State, Logs]:
        """Makes one gradient step; of what heads have of their own only the active one's moves."""
        loss_key, weight_key = jax.random.split(key)
        log_weight = self.strategy.log_weight(state, batch.acted, weight_key)

        def loss(net: Net) -> tuple[Float[Array, ""], Logs]:
            terms, logs = self.terms(net, state, batch, log_weight, loss_key)
            return sum(terms.values(), jnp.float32(0.0)), jax.lax.stop_gradient({**terms, **logs})

        gradient, logs = jax.grad(loss, has_aux=True)(state.net)
        # On the gradient before it is clipped, and on the weights, which decay without a gradient.
        gradient = self.strategy.freeze(zeros_like(gradient), gradient, state)
        gradient, norms = clip(gradient, GROUPS, self.clip)
        rates = self.learning_rate, self.weight_decay
        net, optimizer = adamw(state.net, gradient, state.optimizer, *rates)
        net = self.strategy.freeze(state.net, net, state)
        targets = optax.incremental_update(net.critics, state.targets, self.target_rate)
        state = replace(
            state,
            heads=state.heads.write(state.active, net),
            targets=targets,
            optimizer=optimizer,
            clock=replace(state.clock, update=state.clock.update + 1),
        )
        return replace(state, memory=self.strategy.after_update(state, logs)), {**logs, **norms}

    def terms(
        self,
        net: Net,
        state: State,
        batch: Batch,
        log_weight: Array | None,
        key: PRNGKey,
    ) -> tuple[Logs, Logs]:
        """Calculates the terms of the loss by name, and what to log besides."""
        skill_key, strategy_key = jax.random.split(key)
        q_loss, v_loss, exponent = omiga.critic_losses(
            net.critics,
            state.targets,
            batch,
            self.temperature,
            self.discount,
        )
        steps = batch.acted
        valid = acting(steps)
        exponent = exponent if log_weight is None else exponent + log_weight
        weight = jnp.exp(bounded(exponent))
        log_prob, kl, logs = net.actor.imitate(steps, self.kl_into_posterior, skill_key)
        terms = {"q_loss": q_loss, "v_loss": v_loss}
        terms["policy_loss"] = -masked_mean(weight * log_prob, valid)
        if kl is not None:
            logs["kl"] = masked_mean(kl, valid)
            terms["kl_loss"] = self.kl_weight * logs["kl"]
        more, more_logs = self.strategy.terms(net, state, batch, strategy_key)
        return {**terms, **more}, {**logs, **omiga.weight_logs(weight, steps), **more_logs}

    def finish(self, state: State, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> State:
        """Ends a task."""
        return replace(state, memory=self.strategy.finish(state, sample, key))

    def route(self, state: State, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """Returns the head that plays a task."""
        return self.strategy.route(state, task, sample)

    def describe(self, state: State) -> dict[str, Array]:
        """Returns what is worth knowing of the heads, by name."""
        return self.strategy.describe(state)

    def start(self, state: State, num_agents: int) -> Float[Array, "agent size"]:
        """Returns the recurrent state with which an episode begins."""
        return state.net.actor.trunk.start(num_agents)

    def act(
        self,
        state: State,
        memory: Float[Array, "agent size"],
        tokens: Tokens,
        available: Bool[Array, "agent action"],
        head: Int[Array, ""],
        greedy: Bool[Array, ""],
        key: PRNGKey,
    ) -> tuple[Actions, Float[Array, "agent size"]]:
        """Returns actions, with skills through a skill: the modes if greedy, else sampled."""
        return state.heads.net(head).actor.act(memory, tokens, available, greedy, key)
