"""Play what was learned: a method's team in a world."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from comad.continual.method import Method
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Outcome, episode_keys, rollout_all
from comad.runs.record import MODES
from comad.types import Actions, Batch, Metric, PRNGKey, Spec, Tokens


class Team(eqx.Module):
    """A learned state as a player: its weights are arguments of the compiled program, its settings are not."""

    state: Any
    head: Int[Array, ""]
    greedy: Bool[Array, ""]
    """Take the likeliest skill and action instead of drawing them."""
    method: Method[Any] = eqx.field(static=True)

    def start(self, spec: Spec) -> Any:
        """The memory with which an episode begins."""
        return self.method.start(self.state, spec.num_agents)

    def act(self, memory: Any, tokens: Tokens, available: Bool[Array, "agent action"], key: PRNGKey) -> tuple[Actions, Any]:
        """What each agent does."""
        return self.method.act(self.state, memory, tokens, available, self.head, self.greedy, key)


TAKEN, BEYOND = 3, 1 << 31
"""The first numbers below a task's key are those by which it is begun, learned and finished; evaluations of these numbers go far beyond."""


def evaluation_key(seed: int, task: int, evaluation: int) -> PRNGKey:
    """Where the episodes of an evaluation start: the same for all methods, so that all meet the same starts."""
    key = jax.random.key(seed)
    for part in (task, evaluation if evaluation >= TAKEN else BEYOND + evaluation):
        key = jax.random.fold_in(key, part)
    return key


def assess(
    method: Method[Any],
    state: Any,
    worlds: Sequence[Env[Any] | HostEnv[Any]],
    samples: Sequence[Batch],
    metric: Metric,
    seed: int,
    evaluation: int,
    num_episodes: int,
) -> dict[str, Any]:
    """Play every task with the head that the method chooses for it, drawing actions and taking the likeliest: scores of both, by task."""
    heads = [_route(method, state, jnp.int32(task), sample) for task, sample in enumerate(samples)]
    keys = [episode_keys(evaluation_key(seed, task, evaluation), 0, num_episodes) for task in range(len(worlds))]
    teams = [Team(state, head, jnp.array(mode == "greedy"), method) for mode in MODES for head in heads]
    outcomes = rollout_all([*worlds] * len(MODES), teams, keys * len(MODES))
    specs, played = [env.spec for env in worlds], zip(*[iter(outcomes)] * len(worlds), strict=True)
    scores: dict[str, Any] = {mode: summarize(some, specs, metric) for mode, some in zip(MODES, played, strict=True)}
    return {"heads": [int(head) for head in heads], **scores}


@partial(jax.jit, static_argnames="method")
def _route(method: Method[Any], state: Any, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
    return method.route(state, task, sample)


def summarize(outcomes: Sequence[Outcome], specs: Sequence[Spec], metric: Metric) -> dict[str, list[float]]:
    """Means over episodes, by task; the score is what the stream's metric makes of them."""
    means = [jax.tree.map(lambda leaf: float(np.asarray(leaf, float).mean()), outcome) for outcome in outcomes]
    return {
        "score": [score(mean.total, mean.success, spec, metric) for mean, spec in zip(means, specs, strict=True)],
        "return": [mean.total for mean in means],
        "success": [mean.success for mean in means],
        "length": [mean.length for mean in means],
    }


def score(mean_return: float, success_rate: float, spec: Spec, metric: Metric) -> float:
    """How good a team is, in [0, 1]: how often it succeeds, or its return in shares of what counts as full."""
    return success_rate if metric == "success" else min(max(mean_return / spec.full_return, 0.0), 1.0)
