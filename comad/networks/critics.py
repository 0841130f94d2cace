"""The critics of OMIGA: values of each agent alone, and a mixer that makes them the team's.

    Qtot = sum_i w_i(s) Q_i(o_i, a_i) + b(s),   Vtot = sum_i w_i(s) V_i(o_i) + b(s),   w_i >= 0

Wang et al., "Offline Multi-Agent Reinforcement Learning with Implicit Global-to-Local Value Regularization", 2023.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from comad.networks.attention import WIDTH, ObservationEncoder, StateEncoder
from comad.networks.layers import Draws, Mlp
from comad.networks.policy import gather_last
from comad.types import Actions, Batch, Continuous, Spec, StateTokens, Tokens


class ActionValue(eqx.Module):
    """Q_i of recorded actions."""

    encoder: ObservationEncoder
    base: Mlp
    aimed: Mlp | None
    spec: Spec = eqx.field(static=True)

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "ActionValue":
        """Fresh weights."""
        encoder = ObservationEncoder.create(draws, spec)
        if isinstance(spec.actions, Continuous):
            return cls(encoder, Mlp.create(draws, (WIDTH + len(spec.actions.components), WIDTH, WIDTH, 1)), None, spec)
        base = Mlp.create(draws, (WIDTH, WIDTH, WIDTH, len(spec.actions.base)))
        return cls(encoder, base, Mlp.create(draws, (2 * WIDTH, WIDTH, WIDTH, 1)) if spec.aims else None, spec)

    def __call__(self, tokens: Tokens, actions: Actions) -> Float[Array, "*batch agent"]:
        """The value of what each agent did."""
        if isinstance(self.spec.actions, Continuous):
            return self.base(jnp.concatenate([self.encoder.own_view(tokens), actions], axis=-1))[..., 0]
        if self.aimed is None:
            return gather_last(self.base(self.encoder.own_view(tokens)), actions)
        # Of all targets only the one that was aimed at matters.
        num_base = len(self.spec.actions.base)
        aims = actions >= num_base
        own, target = self.encoder.view_of_one(tokens, jnp.where(aims, actions - num_base, 0))
        plain = gather_last(self.base(own), jnp.where(aims, 0, actions))
        return jnp.where(aims, self.aimed(jnp.concatenate([own, target], axis=-1))[..., 0], plain)

    def of(self, batch: Batch) -> Float[Array, "row time agent"]:
        """The same at every moment of a batch."""
        return batch.each(lambda value, tokens, _, actions: value(tokens, actions), self, self.encoder.aims)


class StateValue(eqx.Module):
    """V_i of what an agent sees."""

    encoder: ObservationEncoder
    mlp: Mlp

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "StateValue":
        """Fresh weights."""
        return cls(ObservationEncoder.create(draws, spec), Mlp.create(draws, (WIDTH, WIDTH, WIDTH, 1)))

    def __call__(self, tokens: Tokens) -> Float[Array, "*batch agent"]:
        """The value for each agent."""
        return self.mlp(self.encoder.own_view(tokens))[..., 0]

    def of(self, batch: Batch) -> Float[Array, "row time agent"]:
        """The same at every moment of a batch."""
        return batch.each(lambda value, tokens, *_: value(tokens), self, self.encoder.aims)


class LinearMixer(eqx.Module):
    """Non-negative weights of the agents' values, and what the situation is worth by itself."""

    encoder: StateEncoder
    weight: Mlp
    bias: Mlp

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "LinearMixer":
        """Fresh weights."""
        encoder = StateEncoder.create(draws, spec)
        return cls(encoder, Mlp.create(draws, (WIDTH, WIDTH, WIDTH, 1)), Mlp.create(draws, (WIDTH, WIDTH, WIDTH, 1)))

    def __call__(self, state: StateTokens) -> tuple[Float[Array, "*batch agent"], Float[Array, "*batch"]]:
        """Weights and bias; agents that are no longer there weigh nothing."""
        agents, whole = self.encoder(state)
        weight = jnp.abs(self.weight(agents)[..., 0]) * state.agent_present
        return weight, self.bias(whole)[..., 0]


def mix(weight: Float[Array, "*batch agent"], bias: Float[Array, "*batch"], values: Float[Array, "*batch agent"]) -> Float[Array, "*batch"]:
    """The team's value."""
    return (weight * values).sum(-1) + bias
