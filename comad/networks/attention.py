"""Entity attention: tokens of any number in, summaries of one width out, so that one set of weights fits every team.

    x = embedding of each token by its kind,   weight_ij = softmax_j(query(x_i) . key(x_j) / sqrt(projection)),
    e_i = LayerNorm(x_i + value(sum_j weight_ij x_j))

The value is applied after the weighted sum and the key is folded into the query, both of which change nothing but the cost: where only
some tokens are read, the others are never projected. Where few of many are, even the last layer of the embeddings is put off in that way.
"""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad import pieces
from comad.networks.layers import Draws, LayerNorm, Linear, Mlp, product
from comad.tokens import everyone, everyone_present, mask_unavailable
from comad.types import Spec, StateTokens, Tokens

WIDTH = 64
PROJECTION = 8

Entities = Float[Array, "*batch entity width"]
Kind = tuple[Float[Array, "*batch _ hidden"], Linear]
"""Entities of one kind before the last layer of their embedding, and that layer."""


@jax.custom_vjp
def likeness(readers: Entities, entities: Float[Array, "*batch other width"]) -> Float[Array, "*batch entity other"]:
    """Inner products of all readers with all entities; its gradients, and those of `mixture`, are these two again.

    Left to themselves they would be products over the first axis of a stack of small matrices, which take five times as long.
    """
    return jnp.einsum("...iw,...jw->...ij", readers, entities)


@jax.custom_vjp
def mixture(weights: Float[Array, "*batch entity other"], entities: Float[Array, "*batch other width"]) -> Entities:
    """Sums of entities, weighed for each reader."""
    return jnp.einsum("...ij,...jw->...iw", weights, entities)


def _likeness_backward(kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    readers, entities = kept
    return mixture(slope, entities), mixture(jnp.swapaxes(slope, -1, -2), readers)


def _mixture_backward(kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    weights, entities = kept
    return likeness(slope, entities), mixture(jnp.swapaxes(weights, -1, -2), slope)


likeness.defvjp(lambda readers, entities: (likeness(readers, entities), (readers, entities)), _likeness_backward)
mixture.defvjp(lambda weights, entities: (mixture(weights, entities), (weights, entities)), _mixture_backward)


Few = Float[Array, "*batch agent few target"]
"""Which targets the first few are that an agent can aim at: a one for each, and zeros."""


def the_few(aimable: Bool[Array, "*batch agent target"]) -> Few:
    """The first few targets that can be aimed at."""
    rank = jnp.where(aimable, aimable.cumsum(-1) - 1, -1)[..., None, :]
    return (rank == jnp.arange(pieces.FEW).reshape(*[1] * (rank.ndim - 2), -1, 1)).astype(jnp.float32)


def only(few: Few | None, targets: Float[Array, "*batch agent target width"]) -> Float[Array, "*batch agent _ width"]:
    """The few of all targets, or all."""
    return targets if few is None else mixture(few, targets)


def among_all(few: Few | None, made: Float[Array, "*batch agent _ width"]) -> Float[Array, "*batch agent target width"]:
    """What was made of the few, with zeros for all other targets."""
    return made if few is None else mixture(jnp.swapaxes(few, -1, -2), made)


class Attention(eqx.Module):
    """One head of attention with a residual and a layer normalization."""

    query: Linear
    key: Linear
    value: Linear
    norm: LayerNorm

    @classmethod
    def create(cls, draws: Draws) -> "Attention":
        """Fresh weights."""
        query, key = Linear.create(draws, WIDTH, PROJECTION), Linear.create(draws, WIDTH, PROJECTION)
        return cls(query, key, Linear.create(draws, WIDTH, WIDTH), LayerNorm.create(WIDTH))

    def __call__(
        self, readers: Entities, entities: Float[Array, "*batch other width"], seen: Bool[Array, "*batch #entity other"]
    ) -> Entities:
        """What each reader makes of all entities that it sees."""
        # A key's bias adds the same to all scores of a reader, so it cancels and folding the key's weight suffices.
        folded = Linear(self.key.weight.T, jnp.zeros(WIDTH))(self.query(readers))
        scores = likeness(folded, entities) * PROJECTION**-0.5
        weights = jax.nn.softmax(mask_unavailable(scores, jnp.broadcast_to(seen, scores.shape)), axis=-1)
        return self.norm(readers + self.value(mixture(weights, entities)))

    def of_kinds(self, readers: Entities, kinds: Sequence[Kind], seen: Bool[Array, "*batch #entity other"]) -> Entities:
        """The same, of entities whose embedding is never written down: its last layer is folded into queries and values.

        Costs a product per reader and kind instead of one per entity, so it pays where many are seen and few read.
        """
        asked, kinds = self.query(readers), [kind for kind in kinds if kind[0].shape[-2] > 0]
        scores = [
            likeness(product(asked, (last.weight @ self.key.weight).T), hidden) + product(asked, (last.bias @ self.key.weight)[:, None])
            for hidden, last in kinds
        ]
        together = jnp.concatenate(scores, axis=-1) * PROJECTION**-0.5
        masked = mask_unavailable(together, jnp.broadcast_to(seen, together.shape))
        ends = list(itertools.accumulate(hidden.shape[-2] for hidden, _ in kinds))
        weights = jnp.split(jax.nn.softmax(masked, axis=-1), ends[:-1], axis=-1)
        mixed = readers + self.value.bias.reshape(*[1] * (readers.ndim - 1), -1)
        for weight, (hidden, last) in zip(weights, kinds, strict=True):
            shift = product(weight.sum(-1, keepdims=True), (last.bias @ self.value.weight)[None])
            mixed += product(mixture(weight, hidden), last.weight @ self.value.weight) + shift
        return self.norm(mixed)


class ObservationEncoder(eqx.Module):
    """Each agent's summary of what it sees and, where actions aim at targets, its view of each of them.

    Where all see all, allies and targets look the same to everyone and are embedded once per moment instead of once per agent that looks.
    """

    own: Mlp
    ally: Mlp
    target: Mlp
    relations: Attention | None
    """Lets every target look at the team before agents look at the targets: whether somebody else is nearer is a question about pairs."""
    attention: Attention
    aims: bool = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    """Whether all see the same; not so where a target's token tells who aimed at it."""

    @classmethod
    def create(cls, draws: Draws, spec: Spec, relations: bool = False) -> "ObservationEncoder":
        """Fresh weights for a world's tokens."""
        sizes = (spec.own_size, spec.ally_size, spec.target_size)
        own, ally, target = (Mlp.create(draws, (size, WIDTH, WIDTH)) for size in sizes)
        attention = Attention.create(draws)
        return cls(
            own, ally, target, Attention.create(draws) if relations else None, attention, spec.aims, spec.full_view and not spec.aims
        )

    def __call__(
        self, tokens: Tokens, few: Few | None = None
    ) -> tuple[Float[Array, "*batch agent width"], Float[Array, "*batch agent target width"] | None]:
        """Summaries of the own token, and of the targets, or of few of them, if anything aims at them."""
        if not self.aims:
            return self.own_view(tokens), None
        own, targets, entities, seen = self.entities(tokens)
        read = self.attention(jnp.concatenate([own, only(few, targets)], axis=-2), entities, seen)
        return read[..., 0, :], among_all(few, read[..., 1:, :])

    def own_view(self, tokens: Tokens) -> Float[Array, "*batch agent width"]:
        """Summaries of the own token alone."""
        if self.shared:
            return self.attention(*self.shared_entities(tokens))
        if self.relations:
            own, _, entities, seen = self.entities(tokens)
            return self.attention(own, entities, seen)[..., 0, :]
        kinds, seen = self.kinds(tokens)
        return self.attention.of_kinds(embedded(kinds[0]), kinds, seen)[..., 0, :]

    def view_of_one(
        self, tokens: Tokens, target: Int[Array, "*batch agent"]
    ) -> tuple[Float[Array, "*batch agent width"], Float[Array, "*batch agent width"]]:
        """Summaries of the own token and of one target for each agent."""
        kinds, seen = self.kinds(tokens)
        hidden, last = kinds[2]
        one = jnp.take_along_axis(hidden, target[..., None, None], axis=-2)
        read = self.attention.of_kinds(jnp.concatenate([embedded(kinds[0]), last(one)], axis=-2), kinds, seen)
        return read[..., 0, :], read[..., 1, :]

    def kinds(self, tokens: Tokens) -> tuple[tuple[Kind, Kind, Kind], Bool[Array, "*batch 1 entity"]]:
        """The own token, allies and targets, each before the last layer of its embedding, and what of it an agent sees."""
        own, allies, targets = (
            (mlp.hidden(part), mlp.layers[-1])
            for mlp, part in ((self.own, tokens.own[..., None, :]), (self.ally, tokens.allies), (self.target, tokens.targets))
        )
        return (own, allies, targets), what_is_seen(tokens)

    def entities(
        self, tokens: Tokens
    ) -> tuple[Float[Array, "*batch 1 width"], Float[Array, "*batch target width"], Entities, Bool[Array, "*batch 1 entity"]]:
        """The own token, the targets, everything that there is to see, and what of it an agent sees."""
        own, allies, targets = self.own(tokens.own)[..., None, :], self.ally(tokens.allies), self.target(tokens.targets)
        seen = what_is_seen(tokens)
        if self.relations:
            team = jnp.concatenate([own, allies], axis=-2)
            targets = self.relations(targets, team, seen[..., : team.shape[-2]])
        return own, targets, jnp.concatenate([own, allies, targets], axis=-2), seen

    def shared_entities(self, tokens: Tokens) -> tuple[Entities, Float[Array, "*batch other width"], Bool[Array, "*batch entity other"]]:
        """The readers, all that there is to see (each agent as itself, each as an ally, the targets), and who sees what of it."""
        own, allies, targets = self.own(tokens.own), self.ally(everyone(tokens)), self.target(tokens.targets[..., 0, :, :])
        if self.relations:
            targets = self.relations(targets, allies, everyone_present(tokens)[..., None, :])
        lead, num_agents = tokens.own.shape[:-2], tokens.own.shape[-2]
        itself = jnp.eye(num_agents, dtype=bool).reshape(*[1] * len(lead), num_agents, num_agents)
        present = jnp.broadcast_to(everyone_present(tokens)[..., None, :], (*lead, num_agents, num_agents))
        seen = jnp.concatenate([jnp.broadcast_to(itself, present.shape), present & ~itself, tokens.target_seen], axis=-1)
        return own, jnp.concatenate([own, allies, targets], axis=-2), seen


def embedded(kind: Kind) -> Float[Array, "*batch _ width"]:
    """Entities of a kind, with the last layer of their embedding applied."""
    hidden, last = kind
    return last(hidden)


def what_is_seen(tokens: Tokens) -> Bool[Array, "*batch 1 entity"]:
    """Of itself, allies and targets, what an agent sees."""
    itself = jnp.ones((*tokens.own.shape[:-1], 1), bool)
    return jnp.concatenate([itself, tokens.ally_seen, tokens.target_seen], axis=-1)[..., None, :]


class StateEncoder(eqx.Module):
    """A summary of each agent's place in the whole situation, and one of the situation."""

    agent: Mlp
    target: Mlp
    context: Mlp | None
    attention: Attention

    @classmethod
    def create(cls, draws: Draws, spec: Spec, in_action: bool = False) -> "StateEncoder":
        """Fresh weights for a world's state tokens, or for those that show what is done (`tokens.in_action`)."""
        agent, target = (Mlp.create(draws, (size, WIDTH, WIDTH)) for size in state_sizes(spec, in_action))
        context = Mlp.create(draws, (len(spec.context), WIDTH, WIDTH)) if spec.context else None
        return cls(agent, target, context, Attention.create(draws))

    def __call__(self, state: StateTokens) -> tuple[Float[Array, "*batch agent width"], Float[Array, "*batch width"]]:
        """Agents' summaries, and the mean over all entities that are present."""
        _, entities, there = self.embed(state)
        read = self.attention(entities, entities, there[..., None, :])
        counted = there[..., None].astype(read.dtype)
        mean = (read * counted).sum(-2) / jnp.maximum(counted.sum(-2), 1.0)
        return read[..., : state.agents.shape[-2], :], mean

    def agents(self, state: StateTokens) -> Float[Array, "*batch agent width"]:
        """Agents' summaries alone, at half the cost."""
        agents, entities, there = self.embed(state)
        return self.attention(agents, entities, there[..., None, :])

    def embed(self, state: StateTokens) -> tuple[Float[Array, "*batch agent width"], Entities, Bool[Array, "*batch entity"]]:
        """The agents, all entities (agents first), and which of these are present."""
        return embed_state(self.agent, self.target, self.context, state)


def state_sizes(spec: Spec, in_action: bool) -> tuple[int, int]:
    """Features of agents and targets in a situation, or in one that shows what is done."""
    return len(spec.state_agent) + in_action * spec.last_action_size, len(spec.state_target) + (in_action and spec.aims)


def embed_state(
    agent: Mlp | Linear, target: Mlp | Linear, context: Mlp | Linear | None, state: StateTokens
) -> tuple[Float[Array, "*batch agent width"], Entities, Bool[Array, "*batch entity"]]:
    """The agents, all entities of a situation (agents first), and which of these are present."""
    agents = agent(state.agents)
    parts, present = [agents, target(state.targets)], [state.agent_present, state.target_present]
    if context:
        parts.append(context(state.context)[..., None, :])
        present.append(jnp.ones((*state.context.shape[:-1], 1), bool))
    return agents, jnp.concatenate(parts, axis=-2), jnp.concatenate(present, axis=-1)
