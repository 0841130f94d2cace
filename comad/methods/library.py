"""The skill library: which heads there are, how sure each one is of its own data, and which head a new task gets."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad.networks.density import DensityTrunk, perturb
from comad.networks.heads import each, pick
from comad.networks.layers import Mlp
from comad.types import Batch, PRNGKey, StateTokens

SMALLEST_DENSITY = 1e-6
SMALLEST_DISTANCE = 1.0
"""Between a head's scores of its own data and of noise: a head that hardly tells them apart is sure of nothing."""
FOLLOWED = 0.02
"""Share of a batch's scores that flows into the running ones."""

Opening = Literal["absolute", "relative"]
Reuse = Literal["ratio", "softmax", "uniform"]
Routing = Literal["likeness", "highest"]


class Library(eqx.Module):
    """Bookkeeping of heads at fixed capacity."""

    used: Int[Array, ""]
    """How many heads have been opened."""
    active: Int[Array, ""]
    """The head that learns now."""
    head_of_task: Int[Array, " task"]
    own_score: Float[Array, " head"]
    """A head's mean log-odds on its own data, when it last learned; a running mean while it learns."""
    noise_score: Float[Array, " head"]
    """And on that data with noise."""
    scores: Float[Array, " head"]
    """Every head's score on the newest task's data, before it was learned."""

    @classmethod
    def create(cls, capacity: int, num_tasks: int) -> "Library":
        """No head opened yet."""
        nothing = jnp.zeros(capacity)
        return cls(jnp.int32(0), jnp.int32(0), jnp.full(num_tasks, -1, jnp.int32), nothing, nothing, nothing)

    @property
    def opened(self) -> Bool[Array, " head"]:
        """Which heads have been opened."""
        return jnp.arange(len(self.own_score)) < self.used

    @property
    def learned_last(self) -> Int[Array, " head"]:
        """The last task that each head learned; -1 for those that have learned none."""
        tasks = jnp.arange(len(self.head_of_task))
        return jax.vmap(lambda head: jnp.where(self.head_of_task == head, tasks, -1).max())(jnp.arange(len(self.own_score)))

    def counts(self, task: Int[Array, ""]) -> dict[str, Array]:
        """How many heads there are and were before a task, and which one learns."""
        before = jnp.where(jnp.arange(len(self.head_of_task)) < task, self.head_of_task + 1, 0).max()
        return {"used": self.used, "before": before, "active": self.active}


def log_odds(trunk: DensityTrunk, heads: Mlp, state: StateTokens) -> Float[Array, "head *batch"]:
    """How familiar situations are to every head."""
    summary = trunk(state)
    return each(heads, lambda head: head(summary)[..., 0])


def mean_log_odds(trunk: DensityTrunk, heads: Mlp, sample: Batch) -> Float[Array, " head"]:
    """How familiar a task's data is to every head."""
    odds = log_odds(trunk, heads, sample.state)
    return jnp.where(sample.present[None], odds, 0.0).sum((1, 2)) / sample.present.sum()


def likeness(library: Library, scores: Float[Array, " head"]) -> Float[Array, " head"]:
    """How much data is like each head's own: 1 if it scores as that does, 0 if as noise does, or as far off on the other side.

    Scores of two heads cannot be compared as they are: a head was never shown other tasks' data, and may find it far more familiar than
    its own. To be too familiar is to be unlike.
    """
    distance = jnp.maximum(library.own_score - library.noise_score, SMALLEST_DISTANCE)
    return 1.0 - jnp.abs(1.0 - (scores - library.noise_score) / distance)


def admit(
    library: Library, task: Int[Array, ""], scores: Float[Array, " head"], rule: Opening, threshold: float, ratio: float, expand: bool
) -> Library:
    """Give a task the most familiar head if that one is familiar enough, else open a new one.

    Absolute: the score itself must exceed the threshold (d0). Relative: the likeness to the head's own data must exceed the ratio, whatever
    level a head's scores have grown to.
    """
    candidates = scores if rule == "absolute" else likeness(library, scores)
    level = threshold if rule == "absolute" else ratio
    candidates = jnp.where(library.opened, candidates, -jnp.inf)
    familiar = candidates.max() > level
    # Without expansion the first head serves all; a full library can only re-use.
    must_reuse = (library.used > 0) & ((not expand) | (library.used >= len(scores)))
    head = jnp.where(familiar | must_reuse, candidates.argmax(), library.used).astype(jnp.int32)
    return Library(
        used=jnp.maximum(library.used, head + 1),
        active=head,
        head_of_task=library.head_of_task.at[task].set(head),
        own_score=library.own_score,
        noise_score=library.noise_score,
        scores=jnp.where(library.opened, scores, 0.0),
    )


def recognize(library: Library, scores: Float[Array, " head"], rule: Routing) -> Int[Array, ""]:
    """The opened head to which data is most like its own, or simply the one that scores it highest."""
    return jnp.where(library.opened, scores if rule == "highest" else likeness(library, scores), -jnp.inf).argmax()


def observe(library: Library, own: Float[Array, ""], noisy: Float[Array, ""]) -> Library:
    """Follow how the head that learns scores its own data and noise, so that it can be compared before its task ends."""
    own_score = library.own_score.at[library.active].add(FOLLOWED * (own - library.own_score[library.active]))
    noise_score = library.noise_score.at[library.active].add(FOLLOWED * (noisy - library.noise_score[library.active]))
    return eqx.tree_at(lambda library: (library.own_score, library.noise_score), library, (own_score, noise_score))


def calibrate(library: Library, trunk: DensityTrunk, heads: Mlp, sample: Batch, noise: float, key: PRNGKey) -> Library:
    """Note how the active head scores its own data, and that data with noise."""
    active = jax.tree.map(lambda leaf: leaf[None], pick(heads, library.active))
    own = mean_log_odds(trunk, active, sample)[0]
    noisy = mean_log_odds(trunk, active, eqx.tree_at(lambda batch: batch.state, sample, perturb(sample.state, noise, key)))[0]
    return eqx.tree_at(
        lambda library: (library.own_score, library.noise_score),
        library,
        (library.own_score.at[library.active].set(own), library.noise_score.at[library.active].set(noisy)),
    )


def consulted(library: Library, most: int) -> Int[Array, " guide"]:
    """The head that learns, and of the other opened ones those to which its task was most familiar when it began."""
    heads = jnp.arange(len(library.scores))
    order = jnp.where(library.opened, library.scores, -jnp.inf)
    return jax.lax.top_k(jnp.where(heads == library.active, jnp.inf, order), most)[1]


def reusability(
    library: Library, odds: Float[Array, "head *batch"], reuse: Reuse, heads: Int[Array, " head"] | None = None
) -> Float[Array, "head *batch"]:
    """Weights of the opened heads in every situation (Eq. 9); they sum to one. Of all heads, or of those whose odds are given."""
    opened = library.opened if heads is None else library.opened[heads]
    opened = opened.reshape(-1, *[1] * (odds.ndim - 1))
    if reuse == "softmax":
        return jax.nn.softmax(jnp.where(opened, odds, -jnp.inf), axis=0)
    density = jnp.ones_like(odds) if reuse == "uniform" else jnp.maximum(odds, SMALLEST_DENSITY)
    density = jnp.where(opened, density, 0.0)
    return density / density.sum(0, keepdims=True)
