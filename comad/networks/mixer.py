"""The state side of ODIS and HiSSD: attention over the whole situation, and QMIX's mixer for any team on top of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from comad.networks.attention import PROJECTION, WIDTH, Entities, embed_state, likeness, mixture, state_sizes
from comad.networks.layers import Draws, Linear, Mlp
from comad.tokens import mask_unavailable
from comad.types import Spec, StateTokens

MIXING = 32


class Look(eqx.Module):
    """Entities that look at each other: narrow queries and keys, the entities themselves as values, nothing around it."""

    reader: Linear
    source: Linear

    @classmethod
    def create(cls, draws: Draws) -> "Look":
        """Fresh weights."""
        return cls(Linear.create(draws, WIDTH, PROJECTION), Linear.create(draws, WIDTH, PROJECTION))

    def __call__(self, entities: Entities, there: Bool[Array, "*batch entity"]) -> Entities:
        """What each entity makes of all that are there."""
        scores = likeness(self.reader(entities), self.source(entities)) * PROJECTION**-0.5
        weights = jax.nn.softmax(mask_unavailable(scores, jnp.broadcast_to(there[..., None, :], scores.shape)), axis=-1)
        return mixture(weights, entities)


class Situation(eqx.Module):
    """The whole situation, as its entities see each other."""

    agent: Linear
    target: Linear
    context: Linear | None
    look: Look

    @classmethod
    def create(cls, draws: Draws, spec: Spec, in_action: bool = False) -> "Situation":
        """Fresh weights for a world's state tokens, or for those that show what is done (`tokens.in_action`)."""
        agent, target = (Linear.create(draws, size, WIDTH) for size in state_sizes(spec, in_action))
        context = Linear.create(draws, len(spec.context), WIDTH) if spec.context else None
        return cls(agent, target, context, Look.create(draws))

    def __call__(
        self, state: StateTokens
    ) -> tuple[Float[Array, "*batch agent width"], Float[Array, "*batch agent width"], Float[Array, "*batch width"]]:
        """Agents as embedded, agents as they see the others, and the mean over all entities that are there."""
        agents, entities, there = embed_state(self.agent, self.target, self.context, state)
        read = self.look(entities, there)
        counted = there[..., None].astype(read.dtype)
        mean = (read * counted).sum(-2) / jnp.maximum(counted.sum(-2), 1.0)
        return agents, read[..., : agents.shape[-2], :], mean


class Mixing(eqx.Module):
    """How the values of agents make the team's, in one situation."""

    first: Float[Array, "*batch agent mixing"]
    first_bias: Float[Array, "*batch mixing"]
    final: Float[Array, "*batch mixing"]
    final_bias: Float[Array, "*batch"]

    def __call__(self, values: Float[Array, "*batch agent"]) -> Float[Array, "*batch"]:
        """The team's value; it never falls where an agent's rises."""
        hidden = jax.nn.elu((self.first * values[..., None]).sum(-2) + self.first_bias)
        return (hidden * self.final).sum(-1) + self.final_bias


class AttentionMixer(eqx.Module):
    """QMIX whose weights come from attention over the situation, so that any number of agents fits."""

    situation: Situation
    first: Mlp
    first_bias: Linear
    final: Mlp
    final_bias: Mlp

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "AttentionMixer":
        """Fresh weights."""
        return cls(
            situation=Situation.create(draws, spec),
            first=Mlp.create(draws, (2 * WIDTH, WIDTH, MIXING)),
            first_bias=Linear.create(draws, WIDTH, MIXING),
            final=Mlp.create(draws, (WIDTH, WIDTH, MIXING)),
            final_bias=Mlp.create(draws, (WIDTH, MIXING, 1)),
        )

    def __call__(self, state: StateTokens) -> Mixing:
        """What a situation makes of values; agents that are no longer there weigh nothing."""
        agents, _, whole = self.situation(state)
        beside = jnp.broadcast_to(whole[..., None, :], agents.shape)
        first = jnp.abs(self.first(jnp.concatenate([beside, agents], axis=-1))) * state.agent_present[..., None]
        return Mixing(first, self.first_bias(whole), jnp.abs(self.final(whole)), self.final_bias(whole)[..., 0])
