"""The utility network of an expert team: one set of weights for all agents, on tokens, with or without memory."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from comad.networks.layers import Draws, Gru, LayerNorm, Linear, Mlp
from comad.tokens import draw_available, mask_unavailable
from comad.types import Actions, Discrete, PRNGKey, Spec, Tokens


class Agent(eqx.Module):
    """Utilities of an agent's actions from what it sees.

    Entities are embedded together with the agent's own token, so that distances come easily, and pooled by attention, so that the
    order in which a world lists them carries no hint that a learner on sets could not follow.
    """

    own: Linear
    ally: Linear
    target: Linear
    relation: "Relation | None"
    query: Linear
    merge: Linear
    norm: LayerNorm
    trunk: Mlp
    memory: Gru | None
    base: Mlp
    aimed: Mlp | None
    num_pools: int = eqx.field(static=True)

    @classmethod
    def create(cls, draws: Draws, spec: Spec, width: int, num_pools: int, relations: bool, recurrent: bool) -> "Agent":
        """Fresh weights for a world's tokens."""
        if not isinstance(spec.actions, Discrete):
            raise TypeError(f"{spec.env} has continuous actions; utilities need discrete ones")
        return cls(
            own=Linear.create(draws, spec.own_size, width),
            ally=Linear.create(draws, spec.ally_size + spec.own_size, width // 2),
            target=Linear.create(draws, spec.target_size + spec.own_size, width // 2),
            relation=Relation.create(draws, width // 2) if relations and spec.num_agents > 1 else None,
            query=Linear.create(draws, width, num_pools * width // 2),
            merge=Linear.create(draws, width + num_pools * width // 2, width),
            norm=LayerNorm.create(width),
            trunk=Mlp.create(draws, (width, width, width)),
            memory=Gru.create(draws, width, width) if recurrent else None,
            base=Mlp.create(draws, (width, width, len(spec.actions.base))),
            aimed=Mlp.create(draws, (width + width // 2, width, 1)) if spec.actions.targeted else None,
            num_pools=num_pools,
        )

    def start(self, num_agents: int) -> Float[Array, "agent size"]:
        """Memory at the start of an episode."""
        return jnp.zeros((num_agents, self.memory.size if self.memory else 0))

    def __call__(
        self, memory: Float[Array, "batch agent size"], tokens: Tokens, first: Bool[Array, "batch time"]
    ) -> tuple[Float[Array, "batch time agent action"], Float[Array, "batch agent size"]]:
        """Utilities of every action at every step of a batch of sequences, and the memory after them."""
        features, targets = self.see(tokens)
        if self.memory:
            features, memory = self.memory.over_time(memory, features, first)
        utilities = self.base(features)
        if self.aimed:
            utilities = jnp.concatenate([utilities, self.aimed.of_pairs(features, targets)[..., 0]], axis=-1)
        return utilities, memory

    def see(self, tokens: Tokens) -> tuple[Float[Array, "*batch agent width"], Float[Array, "*batch agent target view"]]:
        """Each agent's summary of what it sees, and its view of each target."""
        own = jax.nn.relu(self.own(tokens.own))
        allies = _beside_own(self.ally, tokens.allies, tokens.own)
        targets = _beside_own(self.target, tokens.targets, tokens.own)
        if self.relation:
            targets = self.relation(targets, allies, tokens.ally_seen)
        entities = jnp.concatenate([allies, targets], axis=-2)
        seen = jnp.concatenate([tokens.ally_seen, tokens.target_seen], axis=-1)
        queries = self.query(own).reshape(*own.shape[:-1], self.num_pools, entities.shape[-1])
        scores = jnp.einsum("...pw,...ew->...pe", queries, entities) * entities.shape[-1] ** -0.5
        weights = jax.nn.softmax(mask_unavailable(scores, jnp.broadcast_to(seen[..., None, :], scores.shape)), axis=-1)
        pooled = jnp.einsum("...pe,...ew->...pw", weights, entities).reshape(*own.shape[:-1], -1)
        merged = self.norm(self.merge(jnp.concatenate([own, pooled], axis=-1)))
        return jax.nn.relu(merged + self.trunk(jax.nn.relu(merged))), targets


class Relation(eqx.Module):
    """Targets learn which allies are about them: whether somebody else is nearer is no question a single look at all can answer."""

    query: Linear
    message: Linear

    @classmethod
    def create(cls, draws: Draws, width: int) -> "Relation":
        """Silent at first, so that a team may begin from one that had no relations."""
        message = Linear.create(draws, width, width)
        return cls(Linear.create(draws, width, width), jax.tree.map(jnp.zeros_like, message))

    def __call__(
        self, targets: Float[Array, "*batch target view"], allies: Float[Array, "*batch ally view"], seen: Bool[Array, "*batch ally"]
    ) -> Float[Array, "*batch target view"]:
        """Each target with what its allies tell it."""
        scores = jnp.einsum("...tv,...av->...ta", self.query(targets), allies) * targets.shape[-1] ** -0.5
        weights = jax.nn.softmax(mask_unavailable(scores, jnp.broadcast_to(seen[..., None, :], scores.shape)), axis=-1)
        return jax.nn.relu(targets + self.message(jnp.einsum("...ta,...av->...tv", weights, allies)))


def _beside_own(layer: Linear, entities: Float[Array, "*batch entity feature"], own: Float[Array, "*batch own"]) -> Array:
    """Embed entities next to the own token, whose share is computed once for all of them."""
    of_entity, of_own = layer.split(entities.shape[-1])
    return jax.nn.relu(of_entity(entities) + of_own(own)[..., None, :])


class GreedyPlayer(eqx.Module):
    """A team that takes its best available actions, or with a small probability any available one."""

    agent: Agent
    epsilon: Float[Array, ""]

    def start(self, spec: Spec) -> Any:
        """Empty memory."""
        return self.agent.start(spec.num_agents)

    def act(self, memory: Any, tokens: Tokens, available: Bool[Array, "agent action"], key: PRNGKey) -> tuple[Actions, Any]:
        """One step, as a sequence of length one: episodes start with empty memory, so nothing has to be reset."""
        sequence = jax.tree.map(lambda leaf: leaf[None, None], tokens)
        utilities, memory = self.agent(memory[None], sequence, jnp.zeros((1, 1), bool))
        return choose(utilities[0, 0], available, self.epsilon, key), memory[0]


def choose(
    utilities: Float[Array, "*batch agent action"], available: Bool[Array, "*batch agent action"], epsilon: Float[Array, ""], key: PRNGKey
) -> Actions:
    """The best available action, or with probability epsilon, for each agent alone, a uniformly drawn available one."""
    coin_key, draw_key = jax.random.split(key)
    best = mask_unavailable(utilities, available).argmax(-1)
    return jnp.where(jax.random.uniform(coin_key, best.shape) < epsilon, draw_available(draw_key, available), best)
