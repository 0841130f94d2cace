"""From nothing to a pair of players: train, evaluate often, keep every evaluated team, choose the expert and the medium one."""

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from comad import checkpoint
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Outcome, Player, episode_keys, rollout
from comad.errors import UserError
from comad.experts.base import Trainer
from comad.files import read_json, write_json
from comad.types import settings

EVALUATION_EPISODES = 256
MEDIUM = (0.5, 0.65)
"""A medium team is half as good as the expert, by its return or by how often it succeeds (`Spec.metric`), and at most the second share."""
NOISE = 0.15
"""Shares beyond that by which a single evaluation may well be wrong."""


@dataclass(frozen=True)
class Progress:
    """One evaluation on the way: a line of ``curve.jsonl``."""

    steps: int
    loss: float
    total: float
    """Mean return of greedy play."""
    success: float
    length: float
    seconds: float
    """Time spent so far, over all sittings."""


Chosen = tuple[Any, Progress, Outcome]
"""A team, the evaluation at which it was found, and how it did on fresh episodes."""


def train(
    env: Env[Any] | HostEnv[Any],
    trainer: Trainer[Any],
    seed: int,
    folder: Path,
    every: int = 10_000,
    start: Any = None,
    episodes: int = EVALUATION_EPISODES,
) -> Iterator[Progress]:
    """Train a team, yielding after every evaluation. Called again on the same folder it goes on from the last saved state.

    Args:
        env: the world to play in.
        trainer: how to learn.
        seed: decides everything, together with the trainer.
        folder: where the state, the curve and the evaluated teams are kept.
        every: environment steps between evaluations.
        start: weights to begin from, such as a smaller team's.
        episodes: per evaluation.
    """
    _claim(folder, {"env": env.spec.env, "rules": env.spec.rules, "trainer": settings(trainer), "seed": seed, "every": every})
    train_key, evaluation_key = jax.random.split(jax.random.key(seed))
    state = trainer.init(env, train_key)
    if start is not None:
        state = trainer.begin_from(state, start)
    curve: list[Progress] = []
    saved = folder / "state.safetensors"
    if saved.exists():
        state = checkpoint.load(saved, state)
        curve = _read_curve(folder)[: checkpoint.notes(saved)["evaluations"]]
    chunk = max(1, every // trainer.steps_per_iteration)
    began = time.monotonic() - (curve[-1].seconds if curve else 0.0)
    while int(state.iteration) < trainer.iterations:
        state, loss = trainer.advance(env, state, min(chunk, trainer.iterations))
        team = trainer.team(state)
        outcome = evaluate(env, trainer.player(team, env.spec), jax.random.fold_in(evaluation_key, len(curve)), episodes)
        progress = Progress(
            steps=int(state.iteration) * trainer.steps_per_iteration,
            loss=float(loss),
            total=float(outcome.total.mean()),
            success=float(outcome.success.mean()),
            length=float(outcome.length.mean()),
            seconds=time.monotonic() - began,
        )
        curve.append(progress)
        checkpoint.save(folder / "teams" / f"{len(curve) - 1:05d}.safetensors", team)
        _write_curve(folder, curve)
        checkpoint.save(saved, state, evaluations=len(curve))
        yield progress


def evaluate(env: Env[Any] | HostEnv[Any], player: Player, key: jax.Array, num_episodes: int) -> Outcome:
    """How a team plays."""
    outcome, _ = rollout(env, player, episode_keys(key, 0, num_episodes))
    return outcome


def choose_teams(
    env: Env[Any] | HostEnv[Any], trainer: Trainer[Any], folder: Path, num_episodes: int = 2000, medium: tuple[float, float] = MEDIUM
) -> dict[str, Chosen]:
    """The expert, and the first team on the way whose merit is within the given shares of its, with outcomes on fresh episodes."""
    curve = _read_curve(folder)
    if not curve:
        raise UserError(f"{folder}: nothing has been evaluated here yet; train first")
    like, (least, most) = trainer.blank(env.spec), medium
    key = jax.random.key(2**31 - 1)

    def measured(index: int) -> Chosen:
        team = checkpoint.load(folder / "teams" / f"{index:05d}.safetensors", like)
        return team, curve[index], evaluate(env, trainer.player(team, env.spec), key, num_episodes)

    def merit(found: Progress | Outcome) -> float:
        return float(np.mean(found.success if env.spec.metric == "success" else found.total))

    # Single evaluations are noisy: the best few are played again at length, and the best of that is the expert.
    finalists = sorted(range(len(curve)), key=lambda index: (merit(curve[index]), -curve[index].length))[-5:]
    expert = max((measured(index) for index in finalists), key=lambda found: (merit(found[2]), -float(found[2].length.mean())))
    best = merit(expert[2])
    # A curve can leap over the medium range from one evaluation to the next; then the first team that falls back into it is taken.
    passing = [index for index, progress in enumerate(curve) if merit(progress) >= least * best]
    likely = (measured(index) for index in passing if merit(curve[index]) <= (most + NOISE) * best)
    halfway = next((found for found in likely if least * best <= merit(found[2]) <= most * best), None)
    return {"expert": expert, "medium": halfway or measured(passing[0])}


def _claim(folder: Path, identity: dict[str, Any]) -> None:
    """Make the folder this training's own; refuse one that belongs to another."""
    path = folder / "settings.json"
    identity = json.loads(json.dumps(identity))
    if not path.exists():
        write_json(path, identity)
        return
    found = read_json(path)
    if found != identity:
        differing = sorted(name for name in identity if found.get(name) != identity[name])
        raise UserError(f"{folder} holds another training ({', '.join(differing)} differ); choose another folder or remove it")


def _write_curve(folder: Path, curve: list[Progress]) -> None:
    with (folder / "curve.jsonl").open("a") as file:
        file.write(json.dumps(dataclasses.asdict(curve[-1])) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _read_curve(folder: Path) -> list[Progress]:
    path = folder / "curve.jsonl"
    if not path.exists():
        return []
    lines = [Progress(**json.loads(line)) for line in path.read_text().splitlines() if line.endswith("}")]
    # A training killed between its curve and its state repeats an evaluation: the later line counts.
    return [line for line, following in zip(lines, [*lines[1:], None], strict=True) if following is None or following.steps > line.steps]
