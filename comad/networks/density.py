"""How familiar a situation is: recorded states told apart from the same states with noise, one head per family of skills."""

import dataclasses
import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from comad.networks.attention import WIDTH, StateEncoder
from comad.networks.flat import size, unravel
from comad.networks.layers import Draws, Mlp
from comad.types import PRNGKey, Spec, StateTokens


class DensityTrunk(eqx.Module):
    """The part of the estimator that all heads share.

    It is blind to contacts and marks. Contacts are exactly zero most of the time, marks zero or one, and neither ever is with noise:
    one look at them would tell recorded situations apart, whatever the task, and nothing would have to be learned of where they lie.
    """

    encoder: StateEncoder
    mlp: Mlp
    sight: tuple[tuple[float, ...], tuple[float, ...]] | None = eqx.field(static=True)
    """Factors of the features of agents and targets, if some are not seen."""

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "DensityTrunk":
        """Fresh weights."""
        parts = spec.state_agent, spec.state_target
        agents, targets = (tuple(float(not (feature.is_touch or feature.is_mark)) for feature in part) for part in parts)
        sight = None if all(agents + targets) else (agents, targets)
        return cls(StateEncoder.create(draws, spec), Mlp.create(draws, (WIDTH, WIDTH, WIDTH)), sight)

    def __call__(self, state: StateTokens) -> Float[Array, "*batch width"]:
        """A summary of the situation."""
        if self.sight is not None:
            agents, targets = (jnp.array(factors).reshape(*[1] * (state.agents.ndim - 1), -1) for factors in self.sight)
            state = dataclasses.replace(state, agents=state.agents * agents, targets=state.targets * targets)
        return jax.nn.relu(self.mlp(self.encoder(state)[1]))


def density_head(draws: Draws) -> Mlp:
    """A head that says how familiar a situation is: the log-odds of recorded against noisy."""
    return Mlp.create(draws, (WIDTH, WIDTH, WIDTH, 1))


def perturb(state: StateTokens, spread: float, key: PRNGKey) -> StateTokens:
    """A situation with noise on every feature of whatever is present."""
    parts = (state.agents, state.targets, state.context)
    noise = unravel(spread * jax.random.normal(key, (size(parts),)), parts)
    agents = state.agents + noise[0] * state.agent_present[..., None]
    targets = state.targets + noise[1] * state.target_present[..., None]
    context = state.context + noise[2]
    return dataclasses.replace(state, agents=agents, targets=targets, context=context)


def tell(
    trunk: DensityTrunk, head: Mlp, recorded: StateTokens, noisy: StateTokens
) -> tuple[Float[Array, "row time"], Float[Array, "row2 time2"]]:
    """Log-odds of recorded situations and of noisy ones, in one pass over both."""
    one_by_one = partial(jax.tree.map, lambda leaf: leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]))
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), one_by_one(recorded), one_by_one(noisy))
    first, second = (state.agents.shape[:2] for state in (recorded, noisy))
    odds = jnp.split(head(trunk(both))[..., 0], (math.prod(first),))
    return odds[0].reshape(first), odds[1].reshape(second)


def contrast(recorded: Float[Array, "*batch"], noisy: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Noise-contrastive loss (Eq. 11): the log-odds of recorded states should be high, those of noisy ones low."""
    return jax.nn.softplus(-recorded) + jax.nn.softplus(noisy)
