"""Whole datasets as the flat vectors of other people's files, and those as the columns of a dataset."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from comad.datasets.layout import Values, episode_starts
from comad.envs import look, vectors
from comad.tokens import other_agents, state_of
from comad.types import Spec, StateTokens

BLOCK = 4096
"""Moments whose observations are made at once."""


def flatten(spec: Spec, values: Mapping[str, np.ndarray]) -> Values:
    """Every field at every moment, from stored values; features stay in the units they are stored in."""
    lengths = values["episode.length"]
    starts = episode_starts(lengths)
    onehot = np.eye(spec.num_actions, dtype=np.float32)[values["actions"]]
    last_actions = np.roll(onehot, 1, axis=0)
    last_actions[starts] = 0.0
    terminated = np.zeros(len(onehot), bool)
    terminated[starts + lengths - 1] = values["episode.terminated"]
    agents, targets, context = (values[f"state.{name}"] for name in ("agents", "targets", "context"))
    return {
        "obs": vectors.join_obs(spec, *_seen(spec, values)),
        "state": vectors.join_state(spec, agents, targets, context, last_actions),
        "avail_actions": values["available"],
        "actions": values["actions"][..., None],
        "actions_onehot": onehot,
        "reward": values["reward"][..., None],
        "terminated": terminated[..., None],
        "filled": np.ones((len(onehot), 1), bool),
    }


def split(spec: Spec, obs: np.ndarray, state: np.ndarray) -> Values:
    """The columns that flat observations and states hold; where everybody sees everything, the state alone."""
    seen = {} if spec.full_view else vectors.split_obs(spec, obs)
    tokens = {f"tokens.{name}": array for name, array in seen.items()}
    return tokens | {f"state.{name}": array for name, array in vectors.split_state(spec, state).items()}


def _seen(spec: Spec, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Own, ally and target tokens of every agent."""
    if spec.full_view:
        agents, targets = values["state.agents"], values["state.targets"][:, None]
        return agents, agents[:, other_agents(spec.num_agents)], np.repeat(targets, spec.num_agents, axis=1)
    if spec.view:
        return _derived(spec, values)
    return values["tokens.own"], values["tokens.allies"], values["tokens.targets"]


def _derived(spec: Spec, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same where recordings leave them out, some moments at a time, for together they can be gigabytes."""
    see = jax.jit(look, static_argnums=0)
    state = {name: array for name, array in values.items() if name.startswith("state.")}

    def block(first: int) -> StateTokens:
        some = {name: jnp.asarray(array[first : first + BLOCK]) for name, array in state.items()}
        return state_of(some, "state.")

    blocks = [see(spec, block(first)) for first in range(0, len(values["actions"]), BLOCK)]
    own, allies, targets = (np.concatenate([np.asarray(getattr(block, name)) for block in blocks]) for name in ("own", "allies", "targets"))
    return own, allies, targets
