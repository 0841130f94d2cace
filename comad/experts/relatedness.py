"""How related the tasks of a stream are: what the policy of one does in another, without learning."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Outcome, Player, episode_keys, rollout
from comad.experts.joint import JointPlayer
from comad.experts.library import get, nearest
from comad.tokens import complete, no_actions
from comad.types import Actions, Spec, Step, Tokens

Environment = Env[Any] | HostEnv[Any]


@dataclass(frozen=True)
class Relation:
    """What the policy of one task does in the environment of another."""

    policy: int
    """The number of the task that the policy was trained on."""
    task: int
    outcome: Outcome
    likeness: float
    """The share of decisions in which both tasks' policies choose the same action, in states that the task's own policy reaches.

    For continuous actions, the root of the mean squared difference of their components.
    """


def compare(envs: Sequence[Environment], quality: str, folder: Path, episodes: int, seed: int) -> Iterator[Relation]:
    """Yields what every policy does in every environment.

    Args:
        envs: the environments of the tasks.
        quality: of the policies.
        folder: a folder of weights, searched before that of the package.
        episodes: fresh episodes for each pair.
        seed: decides where they start.
    """
    players = [get(env, quality, nearest(env, quality, folder))[0] for env in envs]
    for task, (env, own) in enumerate(zip(envs, players, strict=True)):
        keys = episode_keys(jax.random.key(seed), 0, episodes)
        outcome, kept = rollout(env, own, keys, _keep)
        for policy, player in enumerate(players):
            other = _in(env.spec, player)
            there = outcome if policy == task else rollout(env, other, keys)[0]
            yield Relation(policy, task, there, likeness(env.spec, other, outcome, kept))


def likeness(spec: Spec, player: Player, outcome: Outcome, kept: dict[str, Any]) -> float:
    """Calculates how like a policy's actions are to recorded ones.

    Args:
        spec: of the environment.
        player: the policy.
        outcome: of the recorded episodes.
        kept: their tokens, masks of available actions, and actions, ``[episode, time, ...]``.
    """
    tokens, available, actions = (jax.tree.map(jnp.asarray, kept[name]) for name in ("tokens", "available", "actions"))
    chosen = _replay(spec, player, tokens, available, actions)
    before_the_end = np.arange(actions.shape[1])[None] < np.asarray(outcome.length)[:, None]
    if spec.continuous:
        squares = np.square(np.asarray(chosen) - np.asarray(actions))[before_the_end]
        return float(np.sqrt(squares.mean()))
    decides = before_the_end[..., None] & (np.asarray(available).sum(-1) > 1)
    return float((np.asarray(chosen) == np.asarray(actions))[decides].mean())


def _keep(env_state: Any, step: Step, actions: Actions) -> dict[str, Any]:
    return {"tokens": step.tokens, "available": step.available, "actions": actions}


def _in(spec: Spec, player: Player) -> Player:
    """Returns a policy as it plays an environment: agents are sets, so it plays teams of any size."""
    return replace(player, spec=spec) if isinstance(player, JointPlayer) else player


@partial(jax.jit, static_argnames="spec")
def _replay(
    spec: Spec,
    player: Player,
    tokens: Tokens,
    available: Bool[Array, "episode time agent action"],
    actions: Actions,
) -> Actions:
    """Returns the actions that a policy chooses where others were recorded, given those as its last ones."""

    def one_episode(tokens: Tokens, available: Array, actions: Array) -> Array:
        before = jnp.concatenate([no_actions(spec)[None].astype(actions.dtype), actions[:-1]])

        def one_step(carry: Any, now: tuple[Tokens, Array, Array]) -> tuple[Any, Array]:
            seen = complete(now[0], now[2], spec)
            chosen, carry = player.act(carry, seen, now[1], jax.random.key(0))
            return carry, chosen

        return jax.lax.scan(one_step, player.start(spec), (tokens, available, before))[1]

    return jax.vmap(one_episode)(tokens, available, actions)
