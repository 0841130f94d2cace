"""A trained team inside one's own program: load a run, show it what the agents see, get what they do."""

import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from comad import checkpoint, envs, methods
from comad.continual.method import Method, Recognizes
from comad.envs.base import Env, HostEnv
from comad.errors import MALFORMED, UserError
from comad.files import read_regular
from comad.runs import checkpoints
from comad.runs.checkpoints import describe_skipped
from comad.runs.folder import journal_path, refuse_older
from comad.runs.record import RunRecord, read_run
from comad.settings import from_settings
from comad.tokens import complete, full_view, no_actions
from comad.types import Actions, PRNGKey, Spec, StateTokens, Stream, Task, Tokens


@dataclass(frozen=True)
class Trained:
    """A run's newest checkpoint, with all that made it."""

    record: RunRecord
    method: Method[Any]
    stream: Stream
    worlds: tuple[Env[Any] | HostEnv[Any], ...]
    state: Any
    heads: tuple[int, ...]
    """Which head played each task when all were last evaluated."""
    warnings: tuple[str, ...]
    """Why it is not the newest, if it is not."""

    @property
    def newest(self) -> int:
        """The place of the task that was learned last."""
        return int(self.record.scores[-1]["task"])

    def number(self, task: str) -> int:
        """A task's place in the stream, by its name or its world's; where it comes again, the last one that was begun."""
        names = [{known.name.lower(), known.env.lower(), env.spec.env} for known, env in zip(self.stream.tasks, self.worlds, strict=True)]
        places = [place for place, known in enumerate(names) if task.lower() in known]
        if places:
            return max((place for place in places if place <= self.newest), default=places[0])
        raise UserError(f"{self.record.path} was not trained on {task!r}, but on {', '.join(known.name for known in self.stream.tasks)}")


def restore(path: Path) -> Trained:
    """Load the newest reliable checkpoint of a run."""
    record = read_run(path)
    refuse_older(path, record.settings["identity"])
    try:
        identity = record.settings["identity"]
        method = from_settings(methods.find(identity["method"]), identity["settings"])
        tasks = tuple(from_settings(Task, task) for task in identity["tasks"])
        stream = Stream(identity["stream"], tasks, identity["budget"]["updates"], identity["threshold"], identity["metric"])
        rules = dict(identity["worlds"])
    except MALFORMED as error:
        raise UserError(f"{path}: its settings are not those of a training ({error!r})") from error
    worlds = tuple(envs.make(task.env) for task in tasks)
    for env in worlds:
        if rules.get(env.spec.env) != env.spec.rules_hash:
            raise UserError(
                f"{path} was trained in another version of {env.spec.env} than is here; train it again with 'comad train --fresh'"
            )
    found, skipped = checkpoints.newest(path)
    if found is None or not record.scores:
        reason = f": {next(iter(skipped.values()))}" if skipped else ""
        raise UserError(f"{path} has no checkpoint to load{reason}; 'comad train' makes one")
    # Lines that are newer than the checkpoint tell of heads that it may not have.
    vouched = read_regular(journal_path(path, "scores"))[: found.journals["scores"].size].count(b"\n")
    record = replace(record, scores=record.scores[:vouched])
    if not record.scores:
        raise UserError(f"{path} has no checkpoint of a team that was evaluated; 'comad train' goes on to make one")
    specs = tuple(env.spec for env in worlds)
    like = jax.eval_shape(partial(method.init, stream=stream, specs=specs, updates=stream.updates), jax.random.key(0))
    heads = tuple(head for _, head in record.routed())
    if len(heads) != len(worlds):
        raise UserError(f"{journal_path(record.path, 'scores')} tells heads of {len(heads)} tasks, not {len(worlds)}; train it again")
    return Trained(record, method, stream, worlds, checkpoint.load(found.path, like), heads, tuple(describe_skipped(skipped)))


class Policy:
    """A team that acts, step by step, whatever its size.

    Example::

        policy = Policy.load("runs/cn-expert/comad-seed0", task="CN-4")
        while not done:
            actions = policy.act(tokens, available)  # one row per agent
        policy.reset()  # before the next episode
    """

    def __init__(self, trained: Trained, head: int, greedy: bool = False, seed: int = 0) -> None:
        self.trained, self.head, self.greedy = trained, head, greedy
        self._key = jax.random.key(seed)
        self._time = 0
        self._memory: Any = None
        self._last_actions: Any = None

    @classmethod
    def load(cls, path: Path | str, task: str | None = None, greedy: bool = False, seed: int = 0) -> "Policy":
        """Load a run's team.

        Args:
            path: the folder of a run.
            task: one of the stream's; the head that played it last plays. By default the newest task.
            greedy: take the likeliest skill and action instead of drawing them.
            seed: decides what is drawn.
        """
        trained = restore(Path(path))
        for line in trained.warnings:
            warnings.warn(line, stacklevel=2)
        return cls(trained, trained.heads[trained.newest if task is None else trained.number(task)], greedy, seed)

    def recognize(self, situations: StateTokens) -> int:
        """Choose the head to which situations ``[batch, ...]`` are most familiar, and tell which one it is."""
        method = self.trained.method
        if not isinstance(method, Recognizes):
            raise UserError(f"{self.trained.record.settings['identity']['method']} cannot recognize situations; name the task instead")
        self.head = int(method.recognize(self.trained.state, jax.tree.map(jnp.asarray, situations)))
        return self.head

    def reset(self) -> None:
        """A new episode begins: forget what was seen and done."""
        self._memory = self._last_actions = None

    def act(self, seen: Tokens | StateTokens, available: np.ndarray | Array) -> np.ndarray:
        """What each agent does now, from what it sees (or from the whole state, in worlds where all see all)."""
        tokens = jax.tree.map(jnp.asarray, full_view(jax.tree.map(jnp.asarray, seen)) if isinstance(seen, StateTokens) else seen)
        num_agents, num_targets = tokens.own.shape[0], tokens.targets.shape[1]
        spec = replace(self.trained.worlds[0].spec, env="", rules="", version=0, num_agents=num_agents, num_targets=num_targets)
        if self._last_actions is None:
            self._memory, self._last_actions = self.trained.method.start(self.trained.state, num_agents), no_actions(spec)
        if len(self._last_actions) != num_agents:
            raise UserError(f"a team of {len(self._last_actions)} cannot go on as one of {num_agents}; call reset() between episodes")
        self._last_actions, self._memory = _act(
            self.trained.method,
            spec,
            self.trained.state,
            self._memory,
            self._last_actions,
            tokens,
            jnp.asarray(available),
            jnp.int32(self.head),
            jnp.array(self.greedy),
            jax.random.fold_in(self._key, self._time),
        )
        self._time += 1
        return np.asarray(self._last_actions)


@partial(jax.jit, static_argnums=(0, 1))
def _act(
    method: Method[Any],
    spec: Spec,
    state: Any,
    memory: Any,
    last_actions: Actions,
    tokens: Tokens,
    available: Bool[Array, "agent action"],
    head: Int[Array, ""],
    greedy: Bool[Array, ""],
    key: PRNGKey,
) -> tuple[Actions, Any]:
    return method.act(state, memory, complete(tokens, last_actions, spec), available, head, greedy, key)
