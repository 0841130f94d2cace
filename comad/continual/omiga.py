"""OMIGA, the offline learner under COMAD and its baselines: critics that stay close to what was recorded.

    L_Q = (r + discount Vtot'(next) - Qtot)^2
    L_V = w' V / alpha + exp(w' (Q' - V) / alpha)
    weight of a recorded action = exp(w' (Q' - V) / alpha)

Primes are slowly following copies. Wang et al., "Offline Multi-Agent Reinforcement Learning with Implicit Global-to-Local Value
Regularization", 2023.
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from comad.networks.critics import ActionValue, LinearMixer, StateValue, mix
from comad.networks.flat import size, unravel
from comad.networks.layers import Draws
from comad.types import Batch, PRNGKey, Spec

Network = TypeVar("Network")

EXPONENT_BOUND = 10.0
"""Exponents are kept within this, on both sides."""


class Critics(eqx.Module):
    """Values of agents and team."""

    q: ActionValue
    mixer: LinearMixer
    v: StateValue

    @classmethod
    def create(cls, draws: Draws, spec: Spec) -> "Critics":
        """Fresh weights."""
        return cls(ActionValue.create(draws, spec), LinearMixer.create(draws, spec), StateValue.create(draws, spec))


def critic_losses(
    online: Critics, target: Critics, batch: Batch, temperature: float | Float[Array, ""], discount: float
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, "row time agent"]]:
    """The losses of Q with the mixer (Eq. 2) and of V (Eq. 3), and the exponent that weighs each recorded action of `Batch.acted`.

    Gradients of the first reach Q and mixer only, those of the second V only.
    """
    now, later = batch.acted, batch.following
    weight, bias = jax.lax.stop_gradient(batch.once(lambda moments: target.mixer(moments.state)))
    target_q = jax.lax.stop_gradient(target.q.of(now))
    target_v = jax.lax.stop_gradient(target.v.of(later))

    following = mix(weight[:, 1:], bias[:, 1:], target_v)
    goal = now.reward + discount * jnp.where(now.terminated, 0.0, following)
    team_value = mix(*now.once(lambda moments: online.mixer(moments.state)), online.q.of(now))
    q_loss = masked_mean(jnp.square(team_value - goal), now.step)

    valid, target_weight = acting(now), weight[:, :-1]
    v = online.v.of(now)
    exponent = bounded(target_weight * (target_q - v) / temperature)
    # Dividing by the largest weight changes no gradient's direction and keeps the exponential in range.
    largest = jax.lax.stop_gradient(jnp.maximum(jnp.where(valid, exponent, -EXPONENT_BOUND).max(), -1.0))
    v_loss = masked_mean(jnp.exp(exponent - largest) + jnp.exp(-largest) * target_weight * v / temperature, valid)
    return q_loss, v_loss, jax.lax.stop_gradient(exponent)


def acting(batch: Batch) -> Bool[Array, "row time agent"]:
    """Where an agent that was still there acted."""
    return batch.step[..., None] & batch.state.agent_present


def bounded(exponent: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """An exponent that is safe to exponentiate."""
    return jnp.clip(exponent, -EXPONENT_BOUND, EXPONENT_BOUND)


def masked_mean(values: Float[Array, "*batch"], mask: Bool[Array, "*batch"]) -> Float[Array, ""]:
    """Mean over what counts."""
    return jnp.where(mask, values, 0.0).sum() / jnp.maximum(mask.sum(), 1)


def weight_logs(weight: Float[Array, "row time agent"], steps: Batch) -> dict[str, Array]:
    """Returns how the weights of recorded actions are distributed, by name."""
    valid = acting(steps)
    mean = masked_mean(weight, valid)
    return {
        "weight": mean,
        "weight_spread": jnp.sqrt(masked_mean(jnp.square(weight - mean), valid)),
        "weight_smallest": jnp.where(valid, weight, jnp.inf).min(),
        "weight_largest": jnp.where(valid, weight, 0.0).max(),
    }


def jolt(network: Network, norm: float | Array, key: PRNGKey) -> Network:
    """A network whose weights are moved in a random direction by exactly this distance."""
    noise = jax.random.normal(key, (size(network),))
    return jax.tree.map(jnp.add, network, unravel(noise * norm / jnp.linalg.norm(noise), network))


def unsettle(critics: Critics, norm: float | Array, key: PRNGKey) -> Critics:
    """Critics for a new task: the old ones, each network jolted a little."""
    q_key, mixer_key, v_key = jax.random.split(key, 3)
    return Critics(jolt(critics.q, norm, q_key), jolt(critics.mixer, norm, mixer_key), jolt(critics.v, norm, v_key))
