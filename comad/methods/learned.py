"""What gradients move in methods with skills: an actor, a density estimator and critics, each with one head or a stack of them."""

from dataclasses import replace

import equinox as eqx
import jax
from jaxtyping import Array, Int

from comad.continual.method import Logs
from comad.continual.omiga import Critics
from comad.methods import descent
from comad.networks.critics import ActionValue, LinearMixer, StateValue
from comad.networks.density import DensityTrunk, density_head
from comad.networks.heads import create_heads, pick, put
from comad.networks.layers import Draws, Mlp, initialize
from comad.networks.policy import ActionHead, Trunk
from comad.networks.skills import Kind, PosteriorTrunk, skill_head
from comad.types import PRNGKey, Spec


class Head(eqx.Module):
    """One family of skills: how they are recognized with hindsight, inferred from one's own history, and carried out."""

    policy: ActionHead
    prior: Mlp
    posterior: Mlp

    @classmethod
    def create(cls, draws: Draws, spec: Spec, skill: Kind, skill_size: int) -> "Head":
        """Fresh weights."""
        policy = ActionHead.create(draws, spec, 0 if skill == "none" else skill_size)
        return cls(policy, skill_head(draws, skill, skill_size), skill_head(draws, skill, skill_size))


class Actor(eqx.Module):
    """The policy's side: trunks that all heads share, and a head or a stack of them."""

    trunk: Trunk
    posterior: PosteriorTrunk
    head: Head


class Familiarity(eqx.Module):
    """The density estimator: its trunk, and a head or a stack of them."""

    trunk: DensityTrunk
    head: Mlp


class Learned(eqx.Module):
    """All that gradients move, in four groups whose gradients are clipped each by itself."""

    actor: Actor
    familiarity: Familiarity
    critic: tuple[ActionValue, LinearMixer]
    value: StateValue

    @classmethod
    def create(cls, key: PRNGKey, spec: Spec, capacity: int, skill: Kind, skill_size: int, recurrent: bool) -> "Learned":
        """Fresh weights, with room for that many heads."""

        def shared(draws: Draws) -> tuple[Trunk, PosteriorTrunk, DensityTrunk, Critics]:
            trunks = Trunk.create(draws, spec, recurrent), PosteriorTrunk.create(draws, spec), DensityTrunk.create(draws, spec)
            return *trunks, Critics.create(draws, spec)

        def heads(draws: Draws) -> tuple[Head, Mlp]:
            return Head.create(draws, spec, skill, skill_size), density_head(draws)

        shared_key, head_key = jax.random.split(key)
        trunk, posterior, familiarity, critics = initialize(shared, shared_key)
        head, density = create_heads(heads, head_key, capacity)
        return cls(Actor(trunk, posterior, head), Familiarity(familiarity, density), (critics.q, critics.mixer), critics.v)

    @property
    def critics(self) -> Critics:
        """Both groups of critics."""
        return Critics(*self.critic, self.value)

    def with_critics(self, critics: Critics) -> "Learned":
        """With other critics."""
        return replace(self, critic=(critics.q, critics.mixer), value=critics.v)

    @property
    def trunks(self) -> tuple[Trunk, DensityTrunk]:
        """What is anchored after the first task."""
        return self.actor.trunk, self.familiarity.trunk

    def with_trunks(self, trunk: Trunk, density: DensityTrunk) -> "Learned":
        """With other trunks."""
        return replace(self, actor=replace(self.actor, trunk=trunk), familiarity=replace(self.familiarity, trunk=density))

    def with_head(self, head: Int[Array, ""] | int) -> "Learned":
        """With one head in place of the stack, so that nothing can touch the others."""
        actor = replace(self.actor, head=pick(self.actor.head, head))
        return replace(self, actor=actor, familiarity=replace(self.familiarity, head=pick(self.familiarity.head, head)))

    def with_stack(self, stack: "Learned", head: Int[Array, ""]) -> "Learned":
        """With the one head back in its place in the stack."""
        actor = replace(self.actor, head=put(stack.actor.head, head, self.actor.head))
        familiarity = replace(self.familiarity, head=put(stack.familiarity.head, head, self.familiarity.head))
        return replace(self, actor=actor, familiarity=familiarity)


def family(draws: Draws, spec: Spec, skill: Kind, skill_size: int, recurrent: bool, relations: bool) -> tuple[Actor, Familiarity]:
    """An actor and an estimator of one head each, for families that share nothing."""
    actor = Actor(
        Trunk.create(draws, spec, recurrent, relations), PosteriorTrunk.create(draws, spec), Head.create(draws, spec, skill, skill_size)
    )
    return actor, Familiarity(DensityTrunk.create(draws, spec), density_head(draws))


def move(
    active: Learned, gradient: Learned, optimizer: descent.Optimizer, clip: float, learning_rate: float, weight_decay: float
) -> tuple[Learned, descent.Optimizer, Logs]:
    """One step of all four groups, and how long their gradients were."""
    groups = (gradient.actor, gradient.familiarity, gradient.critic, gradient.value)
    clipped, norms = zip(*(descent.clip(group, clip) for group in groups), strict=True)
    moved, optimizer = descent.descend(active, Learned(*clipped), optimizer, learning_rate, weight_decay)
    names = ("gradient_actor", "gradient_density", "gradient_critic", "gradient_value")
    return moved, optimizer, dict(zip(names, norms, strict=True))
