"""The networks of HiSSD: a planner whose tokens are common skills, what it expects to come, and what tells one task from another."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from comad.networks.attention import PROJECTION, WIDTH, state_sizes
from comad.networks.layers import Draws, LayerNorm, Linear, Mlp
from comad.networks.mixer import Look
from comad.networks.policy import ActionHead
from comad.networks.transformer import Observer, TokenEmbedding, Transformer
from comad.tokens import mask_unavailable
from comad.types import Batch, Spec, Tokens

HIDDEN = 128

PerEntity = Float[Array, "*batch entity width"]


class Bounded(eqx.Module):
    """A perceptron with one hidden layer whose output is normalized and squashed."""

    mlp: Mlp
    norm: LayerNorm

    @classmethod
    def create(cls, draws: Draws) -> "Bounded":
        """Fresh weights."""
        return cls(Mlp.create(draws, (WIDTH, HIDDEN, WIDTH)), LayerNorm.create(WIDTH))

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        """Apply to the last axis."""
        return jnp.tanh(self.norm(self.mlp(x)))


class Planner(eqx.Module):
    """Common skills: what an agent's history makes of each entity it sees."""

    embedding: TokenEmbedding
    transformer: Transformer
    own: Bounded
    target: Bounded
    ally: Bounded

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "Planner":
        """Fresh weights."""
        embedding, transformer = TokenEmbedding.create(draws, spec), Transformer.create(draws)
        return cls(embedding, transformer, *(Bounded.create(draws) for _ in range(3)))

    def __call__(
        self, memory: Float[Array, "row agent width"], tokens: Tokens, first: Bool[Array, "row time"]
    ) -> tuple[Float[Array, "row time agent entity width"], Float[Array, "row agent width"]]:
        """Skills for each entity (itself, targets, allies) at every moment, and the memory after them."""
        entities, seen = self.embedding(tokens)
        return self.transformer.over_time(memory, entities, entities, seen, first)

    def instruct(self, skills: PerEntity, num_targets: int) -> PerEntity:
        """The skills as the policy reads them."""
        own, targets, allies = jnp.split(skills, (1, 1 + num_targets), axis=-2)
        return jnp.concatenate([self.own(own), self.target(targets), self.ally(allies)], axis=-2)


class Predictor(eqx.Module):
    """What comes next, from the skills of all agents.

    Each target's next picture is merged from what all agents make of it, asked for by the picture of the step before. Agents and merged
    targets look at each other; then each tells its next features and what is done now, by agents also next, and to targets if actions aim.
    """

    start: Float[Array, " width"]
    """A target's picture before an episode's first step."""
    across: tuple[Linear, Linear]
    among: Look
    agent: Mlp
    target: Mlp

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "Predictor":
        """Fresh weights."""
        across = Linear.create(draws, WIDTH, PROJECTION), Linear.create(draws, WIDTH, PROJECTION)
        agent, target = state_sizes(spec, in_action=True)
        outputs = agent + spec.last_action_size, target
        return cls(draws(WIDTH), across, Look.create(draws), *(Mlp.create(draws, (WIDTH, HIDDEN, size)) for size in outputs))

    def __call__(
        self, skills: Float[Array, "row time agent entity width"], batch: Batch
    ) -> tuple[Float[Array, "row time agent feature"], Float[Array, "row time target feature2"]]:
        """Expected features of agents and targets one moment later."""
        own, targets = skills[..., 0, :], jnp.swapaxes(skills[..., 1 : 1 + batch.state.targets.shape[2], :], 2, 3)
        keys = self.across[1](targets)
        there = jnp.broadcast_to(batch.state.agent_present[:, :, None, :], targets.shape[:-1])

        def merge(picture: Array, now: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
            targets, keys, there, first = now
            asking = jnp.where(first[:, None, None], self.start[None, None], picture)
            scores = jnp.einsum("btp,btap->bta", self.across[0](asking), keys) * PROJECTION**-0.5
            weights = jax.nn.softmax(mask_unavailable(scores, there), axis=-1)
            merged = jnp.einsum("bta,btaw->btw", weights, targets)
            return merged, merged

        sequence = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (targets, keys, there, batch.first))
        _, merged = jax.lax.scan(merge, jnp.zeros((targets.shape[0], targets.shape[2], WIDTH)), sequence)
        entities = jnp.concatenate([own, jnp.swapaxes(merged, 0, 1)], axis=2)
        present = jnp.concatenate([batch.state.agent_present, batch.state.target_present], axis=-1)
        read, num_agents = self.among(entities, present), own.shape[2]
        return self.agent(read[:, :, :num_agents]), self.target(read[:, :, num_agents:])


class TaskEncoder(eqx.Module):
    """Task-specific skills from what an agent sees now, and a code by which tasks are told apart."""

    embedding: TokenEmbedding
    transformer: Transformer
    skill: Bounded
    code: Mlp
    likeness: Float[Array, "width width"]

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "TaskEncoder":
        """Fresh weights."""
        embedding, transformer = TokenEmbedding.create(draws, spec), Transformer.create(draws)
        code = Mlp.create(draws, (WIDTH, HIDDEN, WIDTH))
        return cls(embedding, transformer, Bounded.create(draws), code, Linear.create(draws, WIDTH, WIDTH).weight)

    def __call__(self, tokens: Tokens) -> Float[Array, "*batch agent width"]:
        """A summary of what each agent sees, of which both skill and code are made."""
        entities, seen = self.embedding(tokens)
        return self.transformer(entities[..., :1, :], entities, seen)[..., 0, :]


class Executor(eqx.Module):
    """The policy: the agent's tokens and memory, the planner's skills for them, and the task's own skill."""

    observer: Observer
    head: ActionHead

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "Executor":
        """Fresh weights."""
        return cls(Observer.create(draws, spec), ActionHead.create(draws, spec, WIDTH, (HIDDEN,)))


class OwnValue(eqx.Module):
    """The value of an agent's history."""

    observer: Observer
    mlp: Mlp

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "OwnValue":
        """Fresh weights."""
        return cls(Observer.create(draws, spec), Mlp.create(draws, (WIDTH, HIDDEN, 1)))

    def __call__(self, batch: Batch) -> Float[Array, "row time agent"]:
        """At every moment of a batch."""
        return self.mlp(self.observer.look(batch).history)[..., 0]
