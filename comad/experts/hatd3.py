"""HATD3: every agent its own actor, all under one pair of critics, for worlds outside JAX whose actions are vectors.

    goal = r + discount^n min Q'(s', a' + noise),   a' from slow copies of the actors,  n steps ahead
    L_Q = (Q - goal)^2,   L_i = - Q_1(s, a_earlier, pi_i(s), a_later)

Actors learn one after another in an order drawn anew each time, and who comes later sees what the earlier ones would do now. Numbers that
are not about size are those published for Ant 4x2; networks, batches and worlds are SAC's here, so that the two compare.
Zhong et al., "Heterogeneous-Agent Reinforcement Learning", 2024.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

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
from comad.networks.heads import create_heads, each, pick, put
from comad.networks.layers import Draws, initialize
from comad.ranges import Count, LearningRate, Share, Size, Spread, Steps, StepsOrZero, ranged
from comad.types import PRNGKey, Spec


@dataclass(frozen=True)
@ranged
class Hatd3:
    """Settings of the trainer."""

    width: Size = 128
    """Width of both hidden layers of actors and critics; published: 256, without layer normalization."""
    num_worlds: Count = 32
    """Worlds played side by side; published: 10."""
    rounds: Size = 2
    """Rounds of updates after each step of all worlds: one of every actor each. Published: one update per step of all worlds."""
    draws: Size = 2
    """Updates of the critics per round."""
    capacity: Count = 1_000_000
    """Steps remembered over all worlds."""
    batch: Count = 256
    """Transitions per update; published: 1000."""
    horizon: Size = 5
    """Steps in one transition."""
    warm_up: StepsOrZero = 10_000
    """Environment steps before learning begins: random actions, or a guide's."""
    discount: Share = 0.99
    """Worth of a reward one step later."""
    critic_rate: LearningRate = 1e-3
    """Learning rate of the critics."""
    actor_rate: LearningRate = 5e-4
    """Learning rate of the actors."""
    decay_from: Share = 0.6
    """Share of the training after which the learning rates fall; published: never."""
    final_rate: Share = 0.05
    """Share of the learning rates left at the end."""
    target_rate: Share = 0.005
    """Share of all networks that flows into their slow copies per round."""
    noise: Spread = 0.1
    """Spread of the noise with which to explore."""
    target_noise: Spread = 0.2
    """Spread of the noise on the slow actors' actions."""
    target_bound: Spread = 0.5
    """The most of it."""
    steps: Steps = 1_200_000
    """Environment steps in all; published: 10 million."""

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

    def team(self, state: HostState) -> "Hatd3Team":
        """Actors and normalizer."""
        return halved(Hatd3Team(state.mind.learner.actors, state.mind.normalizer.mean, state.mind.normalizer.variance))

    def blank(self, spec: Spec) -> "Hatd3Team":
        """Their shapes."""

        def make(key: PRNGKey) -> Hatd3Team:
            numbers = jnp.zeros(num_seen(spec))
            return halved(Hatd3Team(self.actors(spec, key), numbers, numbers))

        return jax.eval_shape(make, jax.random.key(0))

    def player(self, team: "Hatd3Team", spec: Spec) -> JointPlayer:
        """Who does not explore."""
        return JointPlayer(whole(team), spec)

    def actors(self, spec: Spec, key: PRNGKey) -> Tower:
        """Fresh weights of all actors on a leading axis."""
        sizes = (num_seen(spec), self.width, self.width, num_motors(spec) // spec.num_agents)
        return create_heads(partial(Tower.create, sizes=sizes), key, spec.num_agents)

    def create(self, spec: Spec, key: PRNGKey) -> "Hatd3Learner":
        """Fresh networks."""
        actor_key, critic_key = jax.random.split(key)
        actors = self.actors(spec, actor_key)

        def make(draws: Draws) -> Twins:
            return Twins.create(draws, spec, self.width)

        critics, adam = initialize(make, critic_key), optax.adam(0.0)
        slow_actors, slow_critics = jax.tree.map(jnp.copy, (actors, critics))
        return Hatd3Learner(actors, critics, slow_actors, slow_critics, jax.vmap(adam.init)(actors), adam.init(critics))

    def explore(self, learner: "Hatd3Learner", seen: Float[Array, "lane number"], key: PRNGKey) -> Float[Array, "lane motor"]:
        """The actors' actions with some noise."""
        actions = joint_actions(learner.actors, seen)
        return jnp.clip(actions + self.noise * jax.random.normal(key, actions.shape), -1.0, 1.0)

    def improve(
        self, learner: "Hatd3Learner", batches: list[Transition], share: Float[Array, ""], key: PRNGKey
    ) -> tuple["Hatd3Learner", Float[Array, ""]]:
        """Several updates of the critics, then one of every actor in turn, then the slow copies follow."""
        critic_rate, actor_rate = (falling(rate, self.decay_from, self.final_rate, share) for rate in (self.critic_rate, self.actor_rate))
        *noise_keys, order_key = jax.random.split(key, len(batches) + 1)
        critics, critic_optimizer, loss = learner.critics, learner.critic_optimizer, jnp.float32(0.0)
        for batch, noise_key in zip(batches, noise_keys, strict=True):
            goal = self.goal(learner, batch, noise_key)
            critics, critic_optimizer, loss = critics.follow(batch, goal, critic_optimizer, critic_rate)
        order = jax.random.permutation(order_key, learner.num_agents)
        actors, actor_optimizer = take_turns(learner.actors, learner.actor_optimizer, critics, batches[-1].seen, order, actor_rate)
        slow_actors = optax.incremental_update(actors, learner.slow_actors, self.target_rate)
        slow_critics = optax.incremental_update(critics, learner.slow_critics, self.target_rate)
        return Hatd3Learner(actors, critics, slow_actors, slow_critics, actor_optimizer, critic_optimizer), loss

    def goal(self, learner: "Hatd3Learner", batch: Transition, key: PRNGKey) -> Float[Array, " row"]:
        """What the critics should say: rewards, then the value of what follows if all act about as their slow copies would."""
        actions = joint_actions(learner.slow_actors, batch.following)
        noise = jnp.clip(self.target_noise * jax.random.normal(key, actions.shape), -self.target_bound, self.target_bound)
        return batch.reward + batch.discount * learner.slow_critics.least(batch.following, jnp.clip(actions + noise, -1.0, 1.0))


class Hatd3Learner(eqx.Module):
    """Networks, their slow copies, and what Adam remembers of them; actors on a leading axis."""

    actors: Tower
    critics: Twins
    slow_actors: Tower
    slow_critics: Twins
    actor_optimizer: Any
    critic_optimizer: Any

    @property
    def num_agents(self) -> int:
        """How many actors there are."""
        return self.actors.layers[0].bias.shape[0]


class Hatd3Team(eqx.Module):
    """What plays: the actors, and what they take for normal."""

    actors: Tower
    mean: Float[Array, " number"]
    variance: Float[Array, " number"]

    def decide(self, seen: Float[Array, "*batch number"]) -> Float[Array, "*batch motor"]:
        """What every actor does, one after the other."""
        return joint_actions(self.actors, Normalizer(self.mean, self.variance, jnp.float32(1.0))(seen))


def joint_actions(actors: Tower, seen: Float[Array, "*batch number"]) -> Float[Array, "*batch motor"]:
    """All actors' actions, agent after agent."""
    parts = each(actors, lambda actor: jnp.tanh(actor(seen)))
    return jnp.moveaxis(parts, 0, -2).reshape(*seen.shape[:-1], -1)


def take_turns(
    actors: Tower,
    optimizer: Any,
    critics: Twins,
    seen: Float[Array, "row number"],
    order: Int[Array, " agent"],
    rate: Float[Array, ""],
) -> tuple[Tower, Any]:
    """One step of every actor, in the given order; each one reckons with what those before it do after their step."""
    agents = len(order)

    def turn(carry: tuple[Tower, Any, Array], agent: Int[Array, ""]) -> tuple[tuple[Tower, Any, Array], None]:
        actors, optimizer, actions = carry
        actor = pick(actors, agent)

        def loss(actor: Tower) -> Float[Array, ""]:
            return -critics.first_value(seen, put_part(actions, agent, jnp.tanh(actor(seen)), agents)).mean()

        actor, moved = descend(actor, jax.grad(loss)(actor), pick(optimizer, agent), rate)
        actions = put_part(actions, agent, jnp.tanh(actor(seen)), agents)
        return (put(actors, agent, actor), put(optimizer, agent, moved), actions), None

    (actors, optimizer, _), _ = jax.lax.scan(turn, (actors, optimizer, joint_actions(actors, seen)), order)
    return actors, optimizer


def put_part(
    actions: Float[Array, "row motor"], agent: Int[Array, ""], part: Float[Array, "row component"], agents: int
) -> Float[Array, "row motor"]:
    """Joint actions with one agent's part replaced."""
    apart = actions.reshape(len(actions), agents, -1)
    return jax.lax.dynamic_update_index_in_dim(apart, part, agent, 1).reshape(actions.shape)
