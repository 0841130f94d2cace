"""The transformer of ODIS and HiSSD: one layer over an agent's tokens, one of which remembers.

    x' = norm(x + out(attention(x)))    x'' = norm(x' + feed-forward(x'))    y = last(x'')

The memory is one more token; what the layer makes of it is the memory of the next step. Only that token has to run through time: what
the others read of it is merged in afterwards, for all steps at once. The key is folded into the query and the value applied to the
weighted sum. All of this changes nothing but the cost.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from comad.networks.attention import WIDTH, likeness, mixture
from comad.networks.layers import Draws, LayerNorm, Linear, Mlp, product
from comad.networks.policy import View
from comad.tokens import mask_unavailable
from comad.types import Batch, Spec, Tokens

FEED_FORWARD = 256
Readers = Float[Array, "*batch reader width"]


class TokenEmbedding(eqx.Module):
    """Tokens of all kinds in one width."""

    own: Linear
    ally: Linear
    target: Linear

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "TokenEmbedding":
        """Fresh weights for a world's tokens."""
        return cls(*(Linear.create(draws, size, WIDTH) for size in (spec.own_size, spec.ally_size, spec.target_size)))

    def __call__(self, tokens: Tokens) -> tuple[Float[Array, "*batch agent entity width"], Bool[Array, "*batch agent entity"]]:
        """Each agent's entities (itself, targets, allies), and which of them it sees."""
        parts = [self.own(tokens.own)[..., None, :], self.target(tokens.targets), self.ally(tokens.allies)]
        itself = jnp.ones((*tokens.own.shape[:-1], 1), bool)
        return jnp.concatenate(parts, axis=-2), jnp.concatenate([itself, tokens.target_seen, tokens.ally_seen], axis=-1)


class Transformer(eqx.Module):
    """One layer with one head."""

    query: Float[Array, "width width"]
    key: Float[Array, "width width"]
    value: Float[Array, "width width"]
    out: Linear
    after_attention: LayerNorm
    feed_forward: Mlp
    after_feed_forward: LayerNorm
    last: Linear

    @classmethod
    def create(cls, draws: Draws) -> "Transformer":
        """Fresh weights."""
        query, key, value = (Linear.create(draws, WIDTH, WIDTH).weight for _ in range(3))
        feed_forward = Mlp.create(draws, (WIDTH, FEED_FORWARD, WIDTH))
        out, last = Linear.create(draws, WIDTH, WIDTH), Linear.create(draws, WIDTH, WIDTH)
        return cls(query, key, value, out, LayerNorm.create(WIDTH), feed_forward, LayerNorm.create(WIDTH), last)

    def start(self, *lead: int) -> Float[Array, "*lead width"]:
        """Memory at the start of an episode."""
        return jnp.zeros((*lead, WIDTH))

    def __call__(self, readers: Readers, entities: Float[Array, "*batch entity width"], seen: Bool[Array, "*batch entity"]) -> Readers:
        """What the layer makes of some tokens among others, without memory."""
        return self._conclude(readers, self._attend(self._ask(readers), entities, seen)[0])

    def over_time(
        self,
        memory: Float[Array, "row agent width"],
        readers: Float[Array, "row time agent reader width"],
        entities: Float[Array, "row time agent entity width"],
        seen: Bool[Array, "row time agent entity"],
        first: Bool[Array, "row time"],
    ) -> tuple[Float[Array, "row time agent reader width"], Float[Array, "row agent width"]]:
        """What it makes of some tokens at every step of a sequence, and the memory after it. Memory is empty wherever an episode begins."""

        def advance(memory: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            entities, seen, keep = now
            before = jnp.where(keep[:, None, None], memory, 0.0)
            return self._read(before[..., None, :], entities, seen, before)[..., 0, :], before

        sequence = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (entities, seen, ~first))
        last, memories = jax.lax.scan(advance, memory, sequence)
        return self._read(readers, entities, seen, jnp.swapaxes(memories, 0, 1)), last

    def _read(self, readers: Array, entities: Array, seen: Array, memory: Array) -> Array:
        """The layer over entities and the memory: a softmax over both is one over the entities, moved towards the memory by its share."""
        asked = self._ask(readers)
        mixed, total = self._attend(asked, entities, seen)
        share = jax.nn.sigmoid((asked * memory[..., None, :]).sum(-1) * WIDTH**-0.5 - total)
        return self._conclude(readers, mixed + share[..., None] * (memory[..., None, :] - mixed))

    def _ask(self, readers: Array) -> Array:
        return product(product(readers, self.query), self.key.T)

    def _attend(self, asked: Array, entities: Array, seen: Array) -> tuple[Array, Array]:
        """The weighted sum of entities, and the logarithm of the sum of their weights before these are made to sum to one."""
        scores = likeness(asked, entities) * WIDTH**-0.5
        scores = mask_unavailable(scores, jnp.broadcast_to(seen[..., None, :], scores.shape))
        return mixture(jax.nn.softmax(scores, axis=-1), entities), jax.nn.logsumexp(scores, axis=-1)

    def _conclude(self, readers: Array, mixed: Array) -> Array:
        attended = self.after_attention(readers + self.out(product(mixed, self.value)))
        return self.last(self.after_feed_forward(attended + self.feed_forward(attended)))


class Observer(eqx.Module):
    """What an agent makes of its tokens and its memory."""

    embedding: TokenEmbedding
    transformer: Transformer
    aims: bool = eqx.field(static=True)

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "Observer":
        """Fresh weights."""
        return cls(TokenEmbedding.create(draws, spec), Transformer.create(draws), spec.aims)

    def __call__(
        self,
        memory: Float[Array, "row agent width"],
        tokens: Tokens,
        first: Bool[Array, "row time"],
        plan: Float[Array, "row time agent entity width"] | None = None,
    ) -> tuple[View, Float[Array, "row agent width"]]:
        """Its own token and, if actions aim at them, the targets, at every moment; and the memory after them.

        A plan is one more token for each entity that it may look at.
        """
        entities, seen = self.embedding(tokens)
        readers = entities[..., : 1 + self.aims * tokens.targets.shape[-2], :]
        if plan is not None:
            entities, seen = jnp.concatenate([entities, plan], axis=-2), jnp.concatenate([seen, seen], axis=-1)
        read, memory = self.transformer.over_time(memory, readers, entities, seen, first)
        return View(read[..., 0, :], read[..., 1:, :] if self.aims else None), memory

    def look(self, batch: Batch, plan: Float[Array, "row time agent entity width"] | None = None) -> View:
        """The same for a batch."""
        return self(self.transformer.start(len(batch.step), batch.actions.shape[2]), batch.tokens, batch.first, plan)[0]
