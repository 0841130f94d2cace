"""How familiar a situation is: recorded states told apart from the same states with noise, one head per family of skills."""

import dataclasses

import equinox as eqx
import jax
from jaxtyping import Array, Float

from comad.networks.attention import WIDTH, StateEncoder
from comad.networks.layers import Draws, Mlp
from comad.types import PRNGKey, Spec, StateTokens


class DensityTrunk(eqx.Module):
    """The part of the estimator that all heads share."""

    encoder: StateEncoder
    mlp: Mlp

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "DensityTrunk":
        """Fresh weights."""
        return cls(StateEncoder.create(draws, spec), Mlp.create(draws, (WIDTH, WIDTH, WIDTH)))

    def __call__(self, state: StateTokens) -> Float[Array, "*batch width"]:
        """A summary of the situation."""
        return jax.nn.relu(self.mlp(self.encoder(state)[1]))


def density_head(draws: Draws) -> Mlp:
    """A head that says how familiar a situation is: the log-odds of recorded against noisy."""
    return Mlp.create(draws, (WIDTH, WIDTH, WIDTH, 1))


def perturb(state: StateTokens, spread: float, key: PRNGKey) -> StateTokens:
    """A situation with noise on every feature of whatever is present."""
    agent_key, target_key, context_key = jax.random.split(key, 3)
    agents = state.agents + spread * jax.random.normal(agent_key, state.agents.shape) * state.agent_present[..., None]
    targets = state.targets + spread * jax.random.normal(target_key, state.targets.shape) * state.target_present[..., None]
    context = state.context + spread * jax.random.normal(context_key, state.context.shape)
    return dataclasses.replace(state, agents=agents, targets=targets, context=context)


def contrast(recorded: Float[Array, "*batch"], noisy: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Noise-contrastive loss (Eq. 11): the log-odds of recorded states should be high, those of noisy ones low."""
    return jax.nn.softplus(-recorded) + jax.nn.softplus(noisy)
