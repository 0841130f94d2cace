"""All weights that gradients move for one head, and the same for many heads at once."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad.continual.omiga import Critics, acting, masked_mean
from comad.networks import skills
from comad.networks.critics import ActionValue, LinearMixer, StateValue
from comad.networks.density import DensityTrunk, density_head
from comad.networks.heads import create_heads, pick, put
from comad.networks.layers import Draws, Mlp, initialize
from comad.networks.policy import ActionHead, Trunk, View
from comad.networks.skills import Kind, PosteriorTrunk, skill_head
from comad.types import Actions, Batch, PRNGKey, Spec, Tokens

Logs = dict[str, Array]


class ActorHead(eqx.Module):
    """What each head may have of an actor: the policy and, with skills, prior and posterior."""

    policy: ActionHead
    prior: Mlp | None = None
    posterior: Mlp | None = None

    @classmethod
    def create(cls, draws: Draws, spec: Spec, skill: Kind, skill_size: int) -> "ActorHead":
        """Creates fresh weights."""
        if skill == "none":
            return cls(ActionHead.create(draws, spec))
        policy = ActionHead.create(draws, spec, skill_size)
        prior, posterior = (skill_head(draws, skill, skill_size) for _ in range(2))
        return cls(policy, prior, posterior)


class Actor(eqx.Module):
    """A policy over actions: from an agent's history, through an optional skill."""

    trunk: Trunk
    posterior: PosteriorTrunk | None
    head: ActorHead
    skill: Kind = eqx.field(static=True, default="none")

    def act(
        self,
        carry: Float[Array, "agent size"],
        tokens: Tokens,
        available: Bool[Array, "agent action"],
        greedy: Bool[Array, ""],
        key: PRNGKey,
    ) -> tuple[Actions, Float[Array, "agent size"]]:
        """Returns the actions of one step, sampled or the modes, and the next recurrent state."""
        step = jax.tree.map(lambda leaf: leaf[None, None], tokens)
        view, carry = self.trunk(carry[None], step, jnp.zeros((1, 1), bool))
        policy, possible, skill = self.head.policy, available[None, None], no_skill(view)
        if self.head.prior is not None:
            skill_key, key = jax.random.split(key)
            prior = self.head.prior(view.history)
            sampled = skills.draw(self.skill, prior, skill_key)
            skill = jnp.where(greedy, skills.likeliest(self.skill, prior), sampled)
        mode, sample = policy.mode(view, skill, possible), policy.sample(view, skill, possible, key)
        return jnp.where(greedy, mode, sample)[0, 0], carry[0]

    def noise(self, view: View, key: PRNGKey) -> Float[Array, "*batch agent skill"]:
        """Draws what is random in the skills of the prior."""
        if self.head.prior is None:
            return no_skill(view)
        return skills.noise(self.skill, self.head.prior(view.history), key)

    def infer(
        self,
        view: View,
        noise: Float[Array, "*batch agent skill"],
    ) -> Float[Array, "*batch agent skill"]:
        """Returns the skills that noise picks from the prior; gradients reach the prior."""
        if self.head.prior is None:
            return no_skill(view)
        return skills.settle(self.skill, self.head.prior(view.history), noise)

    def imitate(
        self, steps: Batch, kl_into_posterior: bool, key: PRNGKey
    ) -> tuple[Float[Array, "row time agent"], Float[Array, "row time agent"] | None, Logs]:
        """Calculates how likely recorded actions are given the posterior's skill (Eq. 5, Eq. 6).

        Args:
            steps: recorded steps.
            kl_into_posterior: whether the gradient of the KL reaches the posterior too.
            key: draws the skills.

        Returns:
            The log-probabilities, the KL of posterior and prior (``None`` without skills), and what
            is worth logging.
        """
        valid, view = acting(steps), self.trunk.look(steps)
        if self.posterior is None or self.head.prior is None or self.head.posterior is None:
            log_prob, correct = self.head.policy.judge(view, no_skill(view), steps)
            return log_prob, None, _logs("", log_prob, correct, valid)
        posterior_head = self.head.posterior
        trunk, prior = self.posterior, self.head.prior(view.history)
        posterior = steps.once(lambda unique: posterior_head(trunk(unique.state, unique.actions)))
        noise = skills.noise(self.skill, posterior, key)
        skill = skills.settle(self.skill, posterior, noise)
        log_prob, correct = self.head.policy.judge(view, skill, steps)
        target = posterior if kl_into_posterior else jax.lax.stop_gradient(posterior)
        kl = skills.divergence(self.skill, target, prior)
        # A skill that explains far more from hindsight than from history leaks the action.
        inferred = jax.lax.stop_gradient(skills.settle(self.skill, prior, noise))
        prior_log_prob, prior_correct = self.head.policy.judge(view, inferred, steps)
        logs = _logs("_posterior", log_prob, correct, valid)
        return log_prob, kl, logs | _logs("_prior", prior_log_prob, prior_correct, valid)


class Density(eqx.Module):
    """The density estimator by which heads recognize data."""

    trunk: DensityTrunk
    head: Mlp


class Net(eqx.Module):
    """All weights of one head, in four groups; the gradient of each group is clipped by itself."""

    actor: Actor
    density: Density | None
    critic: tuple[ActionValue, LinearMixer]
    value: StateValue

    @property
    def critics(self) -> Critics:
        """Both groups of critics."""
        return Critics(*self.critic, self.value)

    def with_critics(self, critics: Critics) -> "Net":
        """Returns the network with other critics."""
        return replace(self, critic=(critics.q, critics.mixer), value=critics.v)


GROUPS = ("actor", "density", "critic", "value")
Parts = Callable[[Net], tuple[Any, ...]]
"""Selects parts of a network."""


class Heads(eqx.Module):
    """The weights of all heads. Each array is in one of the two parts, absent from the other."""

    shared: Net
    per_head: Net
    """On a leading axis, one entry for each head."""

    @classmethod
    def create(
        cls,
        key: PRNGKey,
        spec: Spec,
        *,
        capacity: int,
        per_head: Parts,
        skill: Kind,
        skill_size: int,
        density: bool,
        recurrent: bool,
    ) -> "Heads":
        """Creates fresh weights with room for that many heads.

        Args:
            key: decides all weights.
            spec: shapes of observations and actions.
            capacity: the number of heads.
            per_head: the parts that every head has of its own.
            skill: the kind of skill, or "none".
            skill_size: dimensions of a skill.
            density: whether there is a density estimator.
            recurrent: whether agents have a recurrent state.
        """
        with_skill = skill != "none"

        def trunks(draws: Draws) -> tuple[Any, ...]:
            actor = Trunk.create(draws, spec, recurrent)
            posterior = PosteriorTrunk.create(draws, spec) if with_skill else None
            estimator = DensityTrunk.create(draws, spec) if density else None
            return actor, posterior, estimator, Critics.create(draws, spec)

        def heads(draws: Draws) -> tuple[Any, ...]:
            actor_head = ActorHead.create(draws, spec, skill, skill_size)
            return actor_head, density_head(draws) if density else None

        def join(trunk_parts: tuple[Any, ...], head_parts: tuple[Any, ...]) -> Net:
            trunk, posterior, estimator, critics = trunk_parts
            actor = Actor(trunk, posterior, head_parts[0], skill)
            net_density = Density(estimator, head_parts[1]) if density else None
            return Net(actor, net_density, (critics.q, critics.mixer), critics.v)

        shared_key, head_key = jax.random.split(key)
        stack = create_heads(heads, head_key, capacity)
        net = join(initialize(trunks, shared_key), pick(stack, 0))
        own = _mask(net, per_head)
        # The trunks of the first head are those that would be shared.
        every_trunk = create_heads(trunks, jax.random.fold_in(shared_key, 1), capacity)
        nets = put(join(every_trunk, stack), 0, net)
        return cls(eqx.filter(net, own, inverse=True), eqx.filter(nets, own))

    def net(self, head: Int[Array, ""] | int) -> Net:
        """Returns all weights of one head."""
        return eqx.combine(self.shared, pick(self.per_head, head))

    def write(self, head: Int[Array, ""] | int, net: Net) -> "Heads":
        """Returns the weights with one head replaced; what is another head's own keeps every bit."""
        own = _where_present(self.per_head, net)
        return Heads(_where_present(self.shared, net), put(self.per_head, head, own))

    def stacked(self, part: Callable[[Net], Any]) -> Any:
        """Returns a part for all heads: what is shared once, what is per head on a leading axis."""
        return eqx.combine(part(self.shared), part(self.per_head))


def no_skill(view: View) -> Float[Array, "*batch agent skill"]:
    """Returns a skill of size zero."""
    return jnp.zeros((*view.history.shape[:-1], 0))


def _logs(name: str, log_prob: Array, correct: Array | None, valid: Array) -> Logs:
    found = {f"log_probability{name}": masked_mean(log_prob, valid)}
    if correct is not None:
        found[f"accuracy{name}"] = masked_mean(correct.astype(float), valid)
    return found


def _mask(net: Net, parts: Parts) -> Net:
    mask = jax.tree.map(lambda leaf: False, net)
    chosen = parts(net)
    return eqx.tree_at(parts, mask, jax.tree.map(lambda leaf: True, chosen)) if chosen else mask


def _where_present(like: Net, net: Net) -> Net:
    keep = partial(jax.tree.map, is_leaf=lambda leaf: leaf is None)
    return keep(lambda leaf, new: None if leaf is None else new, like, net)
