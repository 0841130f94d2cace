"""The flat vectors of other people's data, to tokens and back.

SMAC's observations are moves | enemies | allies | own and its states agents | enemies | last actions; all other worlds have the plain order
own | allies | targets and agents | targets | context.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from comad.datasets.layout import Values, episode_starts
from comad.datasets.starcraft import DIRECTIONS, is_starcraft
from comad.envs import look
from comad.tokens import other_agents
from comad.types import Spec, StateTokens

BLOCK = 4096
"""Moments whose observations are made at once."""


def widths(spec: Spec) -> tuple[int, int]:
    """Numbers in a flat observation and in a flat state."""
    allies, targets, last_actions = spec.num_agents - 1, spec.num_targets, spec.num_agents * spec.num_actions
    obs = len(spec.own) + allies * len(spec.ally) + targets * len(spec.target)
    state = spec.num_agents * len(spec.state_agent) + targets * len(spec.state_target) + len(spec.context)
    return obs, state + (last_actions if is_starcraft(spec) else 0)


def flatten(spec: Spec, values: Mapping[str, np.ndarray]) -> Values:
    """Every field at every moment, from stored values; features stay in the units they are stored in."""
    lengths = values["episode.length"]
    starts = episode_starts(lengths)
    onehot = np.eye(spec.num_actions, dtype=np.float32)[values["actions"]]
    last_actions = np.roll(onehot, 1, axis=0)
    last_actions[starts] = 0.0
    terminated = np.zeros(len(onehot), bool)
    terminated[starts + lengths - 1] = values["episode.terminated"]
    return {
        "obs": _join_obs(spec, values),
        "state": _join_state(spec, values, last_actions),
        "avail_actions": values["available"],
        "actions": values["actions"][..., None],
        "actions_onehot": onehot,
        "reward": values["reward"][..., None],
        "terminated": terminated[..., None],
        "filled": np.ones((len(onehot), 1), bool),
    }


def split_obs(spec: Spec, obs: np.ndarray) -> Values:
    """What agents see: an ally is seen if its first feature says so, a target if it has any (one in sight may be out of range)."""
    ally_size, target_size = (spec.num_agents - 1) * len(spec.ally), spec.num_targets * len(spec.target)
    if is_starcraft(spec):
        moves, targets, allies, body = np.split(obs, np.cumsum([len(DIRECTIONS), target_size, ally_size]), axis=-1)
        own = np.concatenate([moves, body], axis=-1)
    else:
        own, allies, targets = np.split(obs, np.cumsum([len(spec.own), ally_size]), axis=-1)
    allies = allies.reshape(*obs.shape[:2], spec.num_agents - 1, len(spec.ally))
    targets = targets.reshape(*obs.shape[:2], spec.num_targets, len(spec.target))
    ally_seen, target_seen = allies[..., 0] > 0, (targets != 0).any(-1)
    return {
        "tokens.own": own,
        "tokens.allies": np.where(ally_seen[..., None], allies, 0),
        "tokens.targets": targets,
        "tokens.ally_seen": ally_seen,
        "tokens.target_seen": target_seen,
    }


def split_state(spec: Spec, state: np.ndarray) -> Values:
    """The whole situation without last actions; who has no health (or, in CN, no row) is absent."""
    agent_size, target_size = spec.num_agents * len(spec.state_agent), spec.num_targets * len(spec.state_target)
    agents, targets, _ = np.split(state, np.cumsum([agent_size, target_size]), axis=-1)
    agents = agents.reshape(-1, spec.num_agents, len(spec.state_agent))
    targets = targets.reshape(-1, spec.num_targets, len(spec.state_target))
    agent_present, target_present = agents[..., 0] > 0, targets[..., 0] > 0
    return {
        "state.agents": np.where(agent_present[..., None], agents, 0),
        "state.targets": np.where(target_present[..., None], targets, 0),
        "state.context": np.zeros((len(state), 0), np.float32),
        "state.agent_present": agent_present,
        "state.target_present": target_present,
    }


def _join_obs(spec: Spec, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Flat observations [moment, agent, feature] from stored values."""
    if spec.full_view:
        agents, targets = values["state.agents"], values["state.targets"][:, None]
        own, allies, targets = agents, agents[:, other_agents(spec.num_agents)], np.repeat(targets, spec.num_agents, axis=1)
    else:
        own, allies, targets = _derived(spec, values) if spec.view else (values[f"tokens.{name}"] for name in ("own", "allies", "targets"))
    allies, targets = (block.reshape(*block.shape[:2], -1) for block in (allies, targets))
    moves, body = np.split(own, [len(DIRECTIONS)], axis=-1)
    return np.concatenate([moves, targets, allies, body] if is_starcraft(spec) else [own, allies, targets], axis=-1)


def _derived(spec: Spec, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Own, ally and target tokens where recordings leave them out, some moments at a time, for together they can be gigabytes."""
    see = jax.jit(look, static_argnums=0)
    state = [values[f"state.{field.name}"] for field in dataclasses.fields(StateTokens)]
    blocks = [
        see(spec, StateTokens(*(jnp.asarray(part[first : first + BLOCK]) for part in state))) for first in range(0, len(state[0]), BLOCK)
    ]
    return [np.concatenate([np.asarray(getattr(block, name)) for block in blocks]) for name in ("own", "allies", "targets")]


def _join_state(spec: Spec, values: Mapping[str, np.ndarray], last_actions: np.ndarray) -> np.ndarray:
    """Flat states [moment, feature] from stored values; SMAC's end with everybody's last action, one-hot."""
    parts = [values["state.agents"], values["state.targets"], values["state.context"], *([last_actions] if is_starcraft(spec) else [])]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=-1)
