"""SAC: one mind for the whole team learns by playing a simulator outside JAX, for worlds whose actions are vectors.

    goal = r + discount^n [ min Q'(s', a') - temperature log pi(a' | s') ],   a' ~ pi(s'),  n steps ahead
    L_Q = (Q - goal)^2,   L_pi = temperature log pi(a | s) - min Q(s, a),   temperature such that -log pi is about its target

Small networks with layer normalization on what the agents see together; each agent does its own part of the joint action.
Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018.
"""

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from comad.envs.base import Env, HostEnv
from comad.experts import hosted
from comad.experts.hosted import HostState
from comad.experts.joint import (
    JointPlayer,
    Normalizer,
    Tower,
    Transition,
    Twins,
    descend,
    falling,
    halved,
    num_motors,
    num_seen,
    whole,
)
from comad.networks.layers import Draws, initialize
from comad.networks.policy import LOG_SPREAD, squashed_log_density_before
from comad.ranges import Count, LearningRate, Nats, Scale, Share, Size, Steps, StepsOrZero, ranged
from comad.types import PRNGKey, Spec


@dataclass(frozen=True)
@ranged
class Sac:
    """Settings of the trainer."""

    width: Size = 128
    """Width of both hidden layers of actor and critics."""
    num_worlds: Count = 32
    """Worlds played side by side."""
    rounds: Size = 2
    """Rounds of updates after each step of all worlds: one of the actor each. Twice as many cost more and taught less."""
    draws: Size = 2
    """Updates of the critics per round."""
    capacity: Count = 1_000_000
    """Steps remembered over all worlds."""
    batch: Count = 256
    """Transitions per update."""
    horizon: Size = 3
    """Steps in one transition."""
    warm_up: StepsOrZero = 5_000
    """Environment steps before learning begins: random actions, or a guide's."""
    discount: Share = 0.99
    """Worth of a reward one step later."""
    learning_rate: LearningRate = 8e-4
    """Of Adam."""
    decay_from: Share = 0.3
    """Share of the training after which the learning rate falls."""
    final_rate: Share = 0.05
    """Share of the learning rate left at the end."""
    target_rate: Share = 0.005
    """Share of the online critics that flows into their targets per update."""
    temperature: Scale = 0.2
    """Worth of a unit of entropy at the start."""
    entropy: Nats = -1.0
    """Entropy to keep per motor."""
    steps: Steps = 1_200_000
    """Environment steps in all."""

    @property
    def steps_per_iteration(self) -> int:
        """One in every world."""
        return self.num_worlds

    @property
    def iterations(self) -> int:
        """Steps of all worlds in all."""
        return -(-self.steps // self.num_worlds)

    init = hosted.init
    begin_from = hosted.begin_from

    def advance(self, env: Env[Any] | HostEnv[Any], state: HostState, iterations: int) -> tuple[HostState, float]:
        """Play and learn."""
        return hosted.advance(self, env, state, iterations)

    def team(self, state: HostState) -> "SacTeam":
        """Actor and normalizer."""
        return halved(SacTeam(state.mind.learner.actor, state.mind.normalizer.mean, state.mind.normalizer.variance))

    def blank(self, spec: Spec) -> "SacTeam":
        """Their shapes."""

        def make() -> SacTeam:
            numbers = jnp.zeros(num_seen(spec))
            return halved(SacTeam(self.actor(Draws(), spec), numbers, numbers))

        return jax.eval_shape(make)

    def player(self, team: "SacTeam", spec: Spec) -> JointPlayer:
        """Who takes the middle of the distribution."""
        return JointPlayer(whole(team), spec)

    def actor(self, draws: Draws, spec: Spec) -> Tower:
        """Fresh weights of the actor, which tells means and spreads."""
        return Tower.create(draws, (num_seen(spec), self.width, self.width, 2 * num_motors(spec)))

    def create(self, spec: Spec, key: PRNGKey) -> "SacLearner":
        """Fresh networks."""

        def make(draws: Draws) -> tuple[Tower, Twins]:
            return self.actor(draws, spec), Twins.create(draws, spec, self.width)

        actor, critics = initialize(make, key)
        temperature = jnp.float32(math.log(self.temperature))
        adam = optax.adam(0.0)
        optimizers = (adam.init(actor), adam.init(critics), adam.init(temperature))
        return SacLearner(actor, critics, jax.tree.map(jnp.copy, critics), temperature, *optimizers)

    def explore(self, learner: "SacLearner", seen: Float[Array, "lane number"], key: PRNGKey) -> Float[Array, "lane motor"]:
        """Draw actions."""
        return drawn(learner.actor, seen, key)[0]

    def improve(
        self, learner: "SacLearner", batches: list[Transition], share: Float[Array, ""], key: PRNGKey
    ) -> tuple["SacLearner", Float[Array, ""]]:
        """Several updates of the critics, then one of the actor and of the temperature."""
        rate = falling(self.learning_rate, self.decay_from, self.final_rate, share)
        *critic_keys, actor_key = jax.random.split(key, len(batches) + 1)
        actor, critics, targets, optimizer = learner.actor, learner.critics, learner.targets, learner.critic_optimizer
        temperature = jnp.exp(learner.log_temperature)
        loss = jnp.float32(0.0)
        for batch, critic_key in zip(batches, critic_keys, strict=True):
            goal = soft_goal(actor, targets, temperature, batch, critic_key)
            critics, optimizer, loss = critics.follow(batch, goal, optimizer, rate)
            targets = optax.incremental_update(critics, targets, self.target_rate)

        def actor_loss(actor: Tower) -> tuple[Float[Array, ""], Float[Array, ""]]:
            actions, log_density = drawn(actor, batches[-1].seen, actor_key)
            return (temperature * log_density - critics.least(batches[-1].seen, actions)).mean(), log_density.mean()

        slope, log_density = jax.grad(actor_loss, has_aux=True)(actor)
        actor, actor_optimizer = descend(actor, slope, learner.actor_optimizer, rate)
        surplus = -log_density - self.entropy * batches[0].actions.shape[-1]
        log_temperature, temperature_optimizer = descend(learner.log_temperature, surplus, learner.temperature_optimizer, rate)
        return SacLearner(actor, critics, targets, log_temperature, actor_optimizer, optimizer, temperature_optimizer), loss


class SacLearner(eqx.Module):
    """Networks, and what Adam remembers of them."""

    actor: Tower
    critics: Twins
    targets: Twins
    log_temperature: Float[Array, ""]
    actor_optimizer: Any
    critic_optimizer: Any
    temperature_optimizer: Any


class SacTeam(eqx.Module):
    """What plays: the actor, and what it takes for normal."""

    actor: Tower
    mean: Float[Array, " number"]
    variance: Float[Array, " number"]

    def decide(self, seen: Float[Array, "*batch number"]) -> Float[Array, "*batch motor"]:
        """The middle of the distribution."""
        return jnp.tanh(gaussian(self.actor, Normalizer(self.mean, self.variance, jnp.float32(1.0))(seen))[0])


def gaussian(actor: Tower, seen: Float[Array, "*batch number"]) -> tuple[Array, Array]:
    """Mean and log standard deviation of actions before they are squashed."""
    mean, log_spread = jnp.split(actor(seen), 2, axis=-1)
    return mean, jnp.clip(log_spread, *LOG_SPREAD)


def drawn(actor: Tower, seen: Float[Array, "row number"], key: PRNGKey) -> tuple[Float[Array, "row motor"], Float[Array, " row"]]:
    """Actions and their log-density."""
    mean, log_spread = gaussian(actor, seen)
    raw = mean + jnp.exp(log_spread) * jax.random.normal(key, mean.shape)
    return jnp.tanh(raw), squashed_log_density_before(raw, mean, log_spread)


def soft_goal(actor: Tower, targets: Twins, temperature: Float[Array, ""], batch: Transition, key: PRNGKey) -> Float[Array, " row"]:
    """What the critics should say: rewards, then the value of what follows with the worth of its entropy."""
    actions, log_density = drawn(actor, batch.following, key)
    return batch.reward + batch.discount * (targets.least(batch.following, actions) - temperature * log_density)
