"""Skills: what an agent is up to, as a small latent; found from the whole situation, inferred from one's own history."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from comad.networks.attention import WIDTH, StateEncoder
from comad.networks.layers import Draws, Mlp
from comad.networks.policy import LOG_SPREAD
from comad.tokens import in_action
from comad.types import Actions, PRNGKey, Spec, StateTokens

Kind = Literal["gaussian", "categorical", "none"]
Parameters = Float[Array, "*batch agent parameter"]
"""What describes a distribution of skills: means and log standard deviations, or logits; empty without skills."""


def parameter_size(kind: Kind, size: int) -> int:
    """Numbers that describe a distribution over skills of a size (dimensions, or classes)."""
    return {"gaussian": 2 * size, "categorical": size, "none": 0}[kind]


def skill_head(draws: Draws, kind: Kind, size: int) -> Mlp:
    """A head that turns a summary into a distribution of skills."""
    return Mlp.create(draws, (WIDTH, WIDTH, WIDTH, parameter_size(kind, size)))


class PosteriorTrunk(eqx.Module):
    """What q reads: the situation and what everybody does in it, from each agent's place."""

    encoder: StateEncoder
    spec: Spec = eqx.field(static=True)

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "PosteriorTrunk":
        """Fresh weights."""
        return cls(StateEncoder.create(draws, spec, in_action=True), spec)

    def __call__(self, state: StateTokens, actions: Actions) -> Float[Array, "*batch agent width"]:
        """One summary per agent."""
        return self.encoder.agents(in_action(state, actions, self.spec))


def noise(kind: Kind, parameters: Parameters, key: PRNGKey) -> Float[Array, "*batch agent skill"]:
    """The chance in drawing skills, apart from the parameters, so that it can serve more than one distribution."""
    # Drawn as one long row: the generator takes seconds to compile for other shapes.
    if kind == "gaussian":
        shape = (*parameters.shape[:-1], parameters.shape[-1] // 2)
        return jax.random.normal(key, (math.prod(shape),)).reshape(shape)
    return jax.random.gumbel(key, (parameters.size,)).reshape(parameters.shape) if kind == "categorical" else parameters


def settle(kind: Kind, parameters: Parameters, chance: Float[Array, "*batch agent skill"]) -> Float[Array, "*batch agent skill"]:
    """The skill that chance picks, such that gradients reach the parameters."""
    if kind == "none":
        return parameters
    if kind == "gaussian":
        mean, log_spread = _split(parameters)
        return mean + jnp.exp(log_spread) * chance
    soft = jax.nn.softmax(parameters + chance)
    hard = jax.nn.one_hot(soft.argmax(-1), soft.shape[-1])
    # Hard forward, soft backward.
    return hard + soft - jax.lax.stop_gradient(soft)


def draw(kind: Kind, parameters: Parameters, key: PRNGKey) -> Float[Array, "*batch agent skill"]:
    """A skill from its distribution."""
    return settle(kind, parameters, noise(kind, parameters, key))


def likeliest(kind: Kind, parameters: Parameters) -> Float[Array, "*batch agent skill"]:
    """The skill in the middle of its distribution."""
    if kind == "none":
        return parameters
    return _split(parameters)[0] if kind == "gaussian" else jax.nn.one_hot(parameters.argmax(-1), parameters.shape[-1])


def expected(kind: Kind, parameters: Parameters) -> Float[Array, "*batch agent skill"]:
    """The mean of a distribution of skills; of classes, their probabilities."""
    return jax.nn.softmax(parameters) if kind == "categorical" else likeliest(kind, parameters)


def divergence(kind: Kind, posterior: Parameters, prior: Parameters) -> Float[Array, "*batch agent"]:
    """KL of the prior from the posterior."""
    if kind == "none":
        return posterior.sum(-1)
    if kind == "categorical":
        log_q, log_p = jax.nn.log_softmax(posterior), jax.nn.log_softmax(prior)
        return (jnp.exp(log_q) * (log_q - log_p)).sum(-1)
    mean_q, log_q = _split(posterior)
    mean_p, log_p = _split(prior)
    ratio = jnp.exp(2.0 * (log_q - log_p))
    return (log_p - log_q + 0.5 * (ratio + jnp.square((mean_q - mean_p) * jnp.exp(-log_p)) - 1.0)).sum(-1)


def _split(parameters: Parameters) -> tuple[Array, Array]:
    mean, log_spread = jnp.split(parameters, 2, axis=-1)
    return mean, jnp.clip(log_spread, *LOG_SPREAD)
