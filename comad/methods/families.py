"""Families of skills that share nothing, each with an actor and a density estimator of its own, side by side on a leading axis."""

from dataclasses import replace
from typing import Literal

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, Int

from comad.continual.omiga import Critics, acting, masked_mean
from comad.methods import descent
from comad.methods.bands import Bands
from comad.methods.learned import Actor, Familiarity, Learned
from comad.methods.library import Library
from comad.methods.weights import Preference, chance, followed
from comad.networks import skills
from comad.networks.heads import pick, put
from comad.types import Batch

Inherited = Literal["actor", "trunk", "nothing"]
"""What a new family takes over from another one."""


class PlusState(eqx.Module):
    """Everything a run of COMAD-plus is."""

    actors: Actor
    """One per family of skills, on a leading axis; they share nothing. They play, and are means of what was learned lately."""
    familiarities: Familiarity
    """Likewise."""
    learner: tuple[Actor, Familiarity]
    """Of the active family what gradients move."""
    critics: Critics
    targets: Critics
    optimizer: descent.Optimizer
    library: Library
    bands: Bands
    spread: Float[Array, ""]
    """Of the advantages on this task, followed."""
    preference: Preference
    """Of this task's episodes that ended well."""
    fits: Float[Array, " head"] | None
    """How much better than chance every family explains what was done in the task it learned last; none where deeds do not count."""
    task: Int[Array, ""]
    update: Int[Array, ""]
    """Updates made on this task."""
    updates: int = eqx.field(static=True)

    @property
    def active(self) -> Learned:
        """What is learned now: one family, so that nothing can touch the others."""
        return Learned(*self.learner, (self.critics.q, self.critics.mixer), self.critics.v)

    def follow(self, moved: Learned, share: float | Float[Array, ""]) -> "PlusState":
        """With what was learned, and the active family drawn towards it by a share: single steps swing, their mean does not."""
        learner, active = (moved.actor, moved.familiarity), self.library.active
        families = (self.actors, self.familiarities)
        actors, familiarities = put(families, active, optax.incremental_update(learner, pick(families, active), share))
        return replace(self, actors=actors, familiarities=familiarities, learner=learner, critics=moved.critics)


def grow(actors: Actor, similar: Int[Array, ""], new: Int[Array, ""], inherited: Inherited) -> Actor:
    """The actors with one of them begun as a copy of another; of itself, nothing happens."""
    if inherited == "nothing":
        return actors
    source = pick(actors, similar)
    if inherited == "trunk":
        source = replace(source, head=pick(actors.head, new))
    return put(actors, new, source)


def explanations(actors: Actor, kind: skills.Kind, sample: Batch, effective: float) -> Float[Array, " family"]:
    """How much better than chance every family's policy explains what was done in the episodes that are to count, in nats per action."""
    now = sample.acted
    weight = followed(Preference.of(sample, effective), now)

    def explain(actor: Actor) -> Float[Array, ""]:
        view = actor.trunk.look(now)
        skill = skills.expected(kind, actor.head.prior(view.history))
        return masked_mean(weight * actor.head.policy.log_probability(view, skill, now), acting(now))

    return jax.lax.map(explain, actors) - chance(weight, now)
