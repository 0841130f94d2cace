"""Operations on tokens that hold for every world: the view of a team that sees all, and the marks every agent carries."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from comad.errors import UserError
from comad.types import ID_BITS, Actions, Continuous, Discrete, PRNGKey, Spec, StateTokens, Tokens

UNAVAILABLE = -1e9
"""The logit of an action that cannot be taken: probability zero in single precision, yet finite."""


def other_agents(num_agents: int) -> np.ndarray:
    """Index table [agent, others]: everybody else, in index order."""
    return np.array([[other for other in range(num_agents) if other != agent] for agent in range(num_agents)], int).reshape(
        num_agents, num_agents - 1
    )


def tokens_of(values: Mapping[str, Any], group: str = "") -> Tokens:
    """Returns tokens of arrays by their names in files, before which a group may stand."""
    return Tokens(
        own=values[f"{group}own"],
        allies=values[f"{group}allies"],
        targets=values[f"{group}targets"],
        ally_seen=values[f"{group}ally_seen"],
        target_seen=values[f"{group}target_seen"],
    )


def state_of(values: Mapping[str, Any], group: str = "") -> StateTokens:
    """Returns a state of arrays by their names in files, as `tokens_of` does."""
    return StateTokens(
        agents=values[f"{group}agents"],
        targets=values[f"{group}targets"],
        context=values[f"{group}context"],
        agent_present=values[f"{group}agent_present"],
        target_present=values[f"{group}target_present"],
    )


def full_view(state: StateTokens) -> Tokens:
    """What agents see when all see all: state tokens, each agent's own one set apart."""
    num_agents = state.agents.shape[-2]
    others = other_agents(num_agents)
    agent_axis = state.agents.ndim - 1
    everyone = (*state.agents.shape[:-2], num_agents)
    return Tokens(
        own=state.agents,
        allies=jnp.take(state.agents, others, axis=-2),
        targets=jnp.broadcast_to(jnp.expand_dims(state.targets, agent_axis - 1), (*everyone, *state.targets.shape[-2:])),
        ally_seen=jnp.take(state.agent_present, others, axis=-1),
        target_seen=jnp.broadcast_to(state.target_present[..., None, :], (*everyone, state.target_present.shape[-1])),
    )


def everyone(tokens: Tokens) -> Float[Array, "*batch agent ally"]:
    """The whole team as allies see it, from the tokens of a full view, in which the own token begins with just that."""
    return tokens.own[..., : tokens.allies.shape[-1]]


def everyone_present(tokens: Tokens) -> Bool[Array, "*batch agent"]:
    """Who of the team is there, from the tokens of a full view: the first agent sees all but itself, the second sees the first."""
    if tokens.own.shape[-2] == 1:
        return jnp.ones(tokens.own.shape[:-1], bool)
    return jnp.concatenate([tokens.ally_seen[..., 1, :1], tokens.ally_seen[..., 0, :]], axis=-1)


def no_actions(spec: Spec) -> Actions:
    """The last actions at the start of an episode: none."""
    if isinstance(spec.actions, Continuous):
        return jnp.zeros((spec.num_agents, len(spec.actions.components)))
    return jnp.full((spec.num_agents,), -1, jnp.int32)


def complete(tokens: Tokens, last_actions: Actions, spec: Spec) -> Tokens:
    """Add what every world's tokens carry: the agent's number in bits, its last action, and whom it aimed at.

    Worlds and datasets leave these out because they follow from the agent's index and the previous actions; only here are they made.
    """
    numbers = jnp.asarray(agent_bits(spec.num_agents))
    own = [tokens.own, jnp.broadcast_to(numbers, (*tokens.own.shape[:-1], ID_BITS)), action_features(last_actions, spec)]
    targets = tokens.targets
    if isinstance(spec.actions, Discrete) and spec.aims:
        aimed = jax.nn.one_hot(last_actions - len(spec.actions.base), spec.num_targets)
        targets = jnp.concatenate([targets, aimed[..., None]], axis=-1)
    return Tokens(jnp.concatenate(own, axis=-1), tokens.allies, targets, tokens.ally_seen, tokens.target_seen)


def action_features(actions: Actions, spec: Spec) -> Float[Array, "*batch agent feature"]:
    """Actions as numbers of one width for any number of targets: base actions one-hot and one for any aimed action, or the vector."""
    if isinstance(spec.actions, Continuous):
        return actions
    base = len(spec.actions.base)
    features = jax.nn.one_hot(actions, base)
    if not spec.aims:
        return features
    return jnp.concatenate([features, (actions >= base)[..., None].astype(features.dtype)], axis=-1)


def in_action(state: StateTokens, actions: Actions, spec: Spec) -> StateTokens:
    """A situation that shows what is done: every agent with its action and, where actions aim, every target with whether any aims at it."""
    agents = jnp.concatenate([state.agents, action_features(actions, spec)], axis=-1)
    if not (isinstance(spec.actions, Discrete) and spec.aims):
        return dataclasses.replace(state, agents=agents)
    aimed = jax.nn.one_hot(actions - len(spec.actions.base), state.targets.shape[-2]).max(-2)
    return dataclasses.replace(state, agents=agents, targets=jnp.concatenate([state.targets, aimed[..., None]], axis=-1))


def agent_bits(num_agents: int) -> np.ndarray:
    """Agent numbers in binary, most significant bit first."""
    powers = 2 ** np.arange(ID_BITS)[::-1]
    return (np.arange(num_agents)[:, None] // powers % 2).astype(np.float32)


def mask_unavailable(logits: Float[Array, "*batch action"], available: Bool[Array, "*batch action"]) -> Float[Array, "*batch action"]:
    """Logits under which an unavailable action has probability zero, yet finite so that gradients stay finite."""
    return jnp.where(available, logits, UNAVAILABLE)


def draw_available(key: PRNGKey, available: Bool[Array, "*batch agent action"]) -> Int[Array, "*batch agent"]:
    """An available action for every agent, each as likely as the others."""
    # One number per agent says which of its available actions, counted from the left; one per action would cost several times as much.
    count = available.sum(-1)
    chosen = (jax.random.uniform(key, count.shape) * count).astype(jnp.int32)
    return (available.cumsum(-1) > chosen[..., None]).argmax(-1)


def check_alike(specs: Sequence[Spec]) -> None:
    """Refuse worlds that no single team can play, because their tokens or actions are not of one kind."""
    first = specs[0]
    for spec in specs:
        for what in ("own", "ally", "target", "state_agent", "state_target", "context", "actions"):
            ours, theirs = (_kind(getattr(one, what)) for one in (first, spec))
            if ours != theirs:
                raise UserError(f"one team cannot play both {first.env} and {spec.env}: their {what} is not alike ({ours} and {theirs})")


def _kind(part: Any) -> str:
    """What networks depend on of a part of a spec."""
    if isinstance(part, Discrete):
        return f"{len(part.base)} actions{' and aimed ones' if part.targeted else ''}"
    return f"vectors of {len(part.components)}" if isinstance(part, Continuous) else f"{len(part)} features"
