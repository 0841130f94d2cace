"""QMIX's mixing network: a team value that never falls when one agent's utility rises."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from comad.networks.layers import Draws, Linear, Mlp
from comad.networks.mixer import Mixing
from comad.types import Spec, StateTokens


class Mixer(eqx.Module):
    """Two mixing layers whose non-negative weights are made from the state by hypernetworks."""

    first_weight: Mlp
    first_bias: Linear
    last_weight: Mlp
    last_bias: Mlp
    width: int = eqx.field(static=True)

    @classmethod
    def create(cls, draws: Draws, spec: Spec, width: int = 32, hidden: int = 64) -> "Mixer":
        """Fresh weights for a world's state."""
        inputs = spec.num_agents * (1 + len(spec.state_agent)) + spec.num_targets * (1 + len(spec.state_target)) + len(spec.context)
        return cls(
            first_weight=Mlp.create(draws, (inputs, hidden, spec.num_agents * width)),
            first_bias=Linear.create(draws, inputs, width),
            last_weight=Mlp.create(draws, (inputs, hidden, width)),
            last_bias=Mlp.create(draws, (inputs, width, 1)),
            width=width,
        )

    def __call__(self, state: StateTokens) -> Mixing:
        """What a state makes of utilities."""
        flat = flatten(state)
        first = jnp.abs(self.first_weight(flat)).reshape(*state.agent_present.shape, self.width)
        return Mixing(first, self.first_bias(flat), jnp.abs(self.last_weight(flat)), self.last_bias(flat)[..., 0])


def flatten(state: StateTokens) -> Float[Array, "*batch feature"]:
    """All state tokens in a row, each with its presence; a team's size is fixed while an expert trains."""
    lead = state.context.shape[:-1]
    parts = (state.agents, state.agent_present, state.targets, state.target_present, state.context)
    return jnp.concatenate([part.reshape(*lead, -1).astype(jnp.float32) for part in parts], axis=-1)
