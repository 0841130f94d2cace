"""Play what was learned: a method's team in a world."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Int

from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Outcome, episode_keys, rollout
from comad.methods.base import Method
from comad.types import Actions, PRNGKey, Spec, Tokens


class Team(eqx.Module):
    """A learned state as a player: its weights are arguments of the compiled program, its settings are not."""

    state: Any
    head: Int[Array, ""]
    method: Method[Any] = eqx.field(static=True)

    def start(self, spec: Spec) -> Any:
        """The memory with which an episode begins."""
        return self.method.start(self.state, spec.num_agents)

    def act(self, memory: Any, tokens: Tokens, available: Bool[Array, "agent action"], key: PRNGKey) -> tuple[Actions, Any]:
        """What each agent does."""
        return self.method.act(self.state, memory, tokens, available, self.head, key)


def evaluation_key(seed: int, task: int, evaluation: int) -> PRNGKey:
    """Where the episodes of an evaluation start: the same for all methods, so that all meet the same starts."""
    key = jax.random.key(seed)
    for part in (task, evaluation):
        key = jax.random.fold_in(key, part)
    return key


def evaluate(env: Env[Any] | HostEnv[Any], team: Team, key: PRNGKey, num_episodes: int = 32) -> Outcome:
    """Play whole episodes, all at once."""
    return rollout(env, team, episode_keys(key, 0, num_episodes))[0]
