"""What methods with skills descend: imitation of recorded actions through a skill, and telling recorded situations from noise."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from comad.continual.method import Logs
from comad.continual.omiga import acting, masked_mean
from comad.methods.learned import Actor, Familiarity
from comad.networks import density, skills
from comad.types import Actions, Batch, PRNGKey, Tokens


class Imitation(eqx.Module):
    """How well recorded actions are explained by skills that hindsight finds, and how far those are from what an agent infers alone."""

    log_probability: Float[Array, "row time agent"]
    """Of the recorded actions, with the skill from the posterior."""
    divergence: Float[Array, "row time agent"]
    """KL of prior and posterior."""
    other_log_probability: Float[Array, "row time agent"] | None
    """Of other actions, if there are any."""
    logs: Logs


def play(
    actor: Actor,
    kind: skills.Kind,
    memory: Float[Array, "agent size"],
    tokens: Tokens,
    available: Bool[Array, "agent action"],
    greedy: Bool[Array, ""],
    key: PRNGKey,
) -> tuple[Actions, Float[Array, "agent size"]]:
    """One moment of an actor of one head: a skill from one's own history, an action from skill and history, and the memory after it."""
    skill_key, action_key = jax.random.split(key)
    moment = jax.tree.map(lambda leaf: leaf[None, None], tokens)
    view, following = actor.trunk(memory[None], moment, jnp.zeros((1, 1), bool))
    prior, possible = actor.head.prior(view.history), available[None, None]
    skill = jnp.where(greedy, skills.likeliest(kind, prior), skills.draw(kind, prior, skill_key))
    likeliest, drawn = actor.head.policy.mode(view, skill, possible), actor.head.policy.sample(view, skill, possible, action_key)
    return jnp.where(greedy, likeliest, drawn)[0, 0], following[0]


def imitate(actor: Actor, batch: Batch, kind: skills.Kind, into_posterior: bool, key: PRNGKey, others: Actions | None = None) -> Imitation:
    """Explain recorded actions (Eq. 5, 6) with an actor of one head.

    Args:
        actor: who explains.
        batch: what was recorded.
        kind: of skill.
        into_posterior: whether the posterior gives way to the prior too.
        key: draws the skills.
        others: actions that nobody took, whose log-probability is wanted too.
    """
    valid, view = acting(batch), actor.trunk.look(batch)
    prior = actor.head.prior(view.history)
    posterior = batch.once(lambda moments: actor.head.posterior(actor.posterior(moments.state, moments.actions)))
    chance = skills.noise(kind, posterior, key)
    skill = skills.settle(kind, posterior, chance)
    log_probability, hit = actor.head.policy.judge(view, skill, batch)
    other = None if others is None else actor.head.policy.log_probability(view, skill, replace(batch, actions=others))
    divergence = skills.divergence(kind, posterior if into_posterior else jax.lax.stop_gradient(posterior), prior)
    # How well the skill does that the agent will have to infer: far worse than with hindsight means that skills leak the action.
    alone = jax.lax.stop_gradient(skills.settle(kind, prior, chance))
    own_log_probability, own_hit = actor.head.policy.judge(view, alone, batch)
    logs = {
        "log_probability_posterior": masked_mean(log_probability, valid),
        "log_probability_prior": masked_mean(own_log_probability, valid),
    }
    if hit is not None and own_hit is not None:
        logs["accuracy_posterior"] = masked_mean(hit.astype(float), valid)
        logs["accuracy_prior"] = masked_mean(own_hit.astype(float), valid)
    return Imitation(log_probability, divergence, other, logs)


def familiarize(familiarity: Familiarity, batch: Batch, noise: float, key: PRNGKey) -> tuple[Float[Array, ""], Logs]:
    """The loss by which recorded situations become familiar and noisy ones do not (Eq. 11)."""
    noisy_state = density.perturb(batch.state, noise, key)
    of_moments, noisy = density.tell(familiarity.trunk, familiarity.head, batch.moments.state, noisy_state)
    recorded = batch.hand(of_moments)
    loss = masked_mean(density.contrast(recorded, noisy), batch.present)
    logs = {
        "density_loss": loss,
        "log_odds": masked_mean(recorded, batch.present),
        "log_odds_noise": masked_mean(noisy, batch.present),
    }
    return loss, logs
