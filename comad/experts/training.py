"""From nothing to a pair of players: train, evaluate often, keep every evaluated team, choose the expert and the medium one."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from comad import checkpoint
from comad.envs.base import Env, HostEnv
from comad.envs.rollout import Outcome, Player, episode_keys, rollout
from comad.errors import UserError
from comad.experts.base import Trainer
from comad.files import read_regular, sha256
from comad.machine import describe_machine
from comad.runs.folder import SEAL, SETTINGS, journal_path
from comad.runs.journal import parse_journal
from comad.runs.run import open_run
from comad.runs.seal import check_seal
from comad.settings import from_settings, settings
from comad.types import Spec

EVALUATION_EPISODES = 256
MEDIUM = (0.5, 0.65)
"""A medium team is half as good as the expert, by its return or by how often it succeeds (`Spec.metric`), and at most the second share."""
CLOSER = "closer"
"""Folder of the same training evaluated more often."""
NOISE = 0.15
"""Shares beyond that by which a single evaluation may well be wrong."""


@dataclass(frozen=True)
class Progress:
    """One evaluation on the way: a line of ``scores.jsonl``."""

    steps: int
    loss: float
    total: float
    """Mean return of greedy play."""
    success: float
    length: float
    seconds: float
    """Time spent so far, over all sittings."""
    team: str
    """SHA-256 of the evaluated team's file."""


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
    tell: Callable[[str], object] = lambda line: None,
    accept_other_machine: bool = False,
) -> Iterator[Progress]:
    """Train a team, yielding after every evaluation. Called again on the same folder it goes on from the last state that can be relied on.

    Args:
        env: the world to play in.
        trainer: how to learn.
        seed: decides everything, together with the trainer.
        folder: where the state, the curve and the evaluated teams are kept.
        every: environment steps between evaluations.
        start: weights to begin from, such as a smaller team's.
        episodes: per evaluation.
        tell: hears which saved states could not be relied on, and why.
        accept_other_machine: go on with a training that was begun on another kind of machine.
    """
    identity = {"env": env.spec.env, "rules": env.spec.rules, "trainer": settings(trainer), "seed": seed, "every": every}
    if start is not None:
        identity["start"] = checkpoint.fingerprint(start)
    train_key, evaluation_key = jax.random.split(jax.random.key(seed))
    state = trainer.init(env, train_key)
    if start is not None:
        state = trainer.begin_from(state, start)
    described = {"identity": identity, "machine": describe_machine()}
    with open_run(folder, described, accept_other_machine=accept_other_machine) as run:
        found = run.resume()
        for line in run.notices():
            tell(line)
        if found:
            state = checkpoint.load(found.path, state)
        curve = read_curve(folder)
        chunk = max(1, every // trainer.steps_per_iteration)
        began = time.monotonic() - (curve[-1].seconds if curve else 0.0)
        while int(state.iteration) < trainer.iterations:
            state, loss = trainer.advance(env, state, min(chunk, trainer.iterations - int(state.iteration)))
            if not math.isfinite(loss):
                raise UserError(
                    f"the loss of {env.spec.env} stopped being finite after {curve[-1].steps if curve else 0} steps; {folder} is kept"
                )
            team = trainer.team(state)
            outcome = evaluate(env, trainer.player(team, env.spec), jax.random.fold_in(evaluation_key, len(curve)), episodes)
            checkpoint.save(team_path(folder, len(curve)), team)
            progress = Progress(
                steps=int(state.iteration) * trainer.steps_per_iteration,
                loss=float(loss),
                total=float(outcome.total.mean()),
                success=float(outcome.success.mean()),
                length=float(outcome.length.mean()),
                seconds=time.monotonic() - began,
                team=sha256(team_path(folder, len(curve))),
            )
            curve.append(progress)
            run.append("scores", settings(progress))
            run.save(len(curve), partial(checkpoint.write, tree=state))
            yield progress


def look_closer(
    env: Env[Any] | HostEnv[Any],
    trainer: Trainer[Any],
    seed: int,
    folder: Path,
    every: int,
    start: Any,
    episodes: int,
    until: int,
    tell: Callable[[str], object] = lambda line: None,
    accept_other_machine: bool = False,
) -> Iterator[Progress]:
    """The same training once more up to some step, evaluated more often: `choose_teams` finds the medium team that the curve leapt over."""
    # A line that cannot be read is for the training itself: a loss of power may have left it there,
    # and then it is cut.
    with suppress(UserError):
        if (curve := read_curve(folder / CLOSER)) and curve[-1].steps >= until:
            return
    for progress in train(env, trainer, seed, folder / CLOSER, every, start, episodes, tell, accept_other_machine):
        yield progress
        if progress.steps >= until:
            return


def team_path(folder: Path, number: int) -> Path:
    """Where the team of an evaluation is kept."""
    return folder / "teams" / f"{number:05d}.safetensors"


def evaluate(env: Env[Any] | HostEnv[Any], player: Player, key: jax.Array, num_episodes: int) -> Outcome:
    """How a team plays."""
    outcome, _ = rollout(env, player, episode_keys(key, 0, num_episodes))
    return outcome


def choose_teams(
    env: Env[Any] | HostEnv[Any],
    trainer: Trainer[Any],
    folder: Path,
    num_episodes: int = 2000,
    medium: tuple[float, float] = MEDIUM,
    closely: bool = True,
) -> dict[str, Chosen]:
    """The expert, and the first team on the way whose merit is within the given shares of its, with outcomes on fresh episodes.

    Teams of a closer look come first, unless they are left out.
    """
    curve = [(team_path(folder, number), progress) for number, progress in enumerate(read_curve(folder))]
    if not curve:
        raise UserError(f"{folder}: nothing has been evaluated here yet; train first")
    curve_closer = read_curve(folder / CLOSER) if closely else []
    closer = [(team_path(folder / CLOSER, number), progress) for number, progress in enumerate(curve_closer)]
    like, (least, most) = trainer.blank(env.spec), medium
    key = jax.random.key(2**31 - 1)

    def measured(found: tuple[Path, Progress]) -> Chosen:
        path, progress = found
        team = checkpoint.load(path, like)
        if sha256(path) != progress.team:
            raise UserError(f"{path}: its bytes are not those that were evaluated (SHA-256 differs); train again in another folder")
        return team, progress, evaluate(env, trainer.player(team, env.spec), key, num_episodes)

    # Single evaluations are noisy: the best few are played again at length, and the best of that is the expert.
    finalists = sorted(curve, key=lambda found: (merit(env.spec, found[1]), -found[1].length))[-5:]
    expert = max(map(measured, finalists), key=lambda found: (merit(env.spec, found[2]), -float(found[2].length.mean())))
    best = merit(env.spec, expert[2])
    # A curve can leap over the medium range from one evaluation to the next; then the first team that falls back into it is taken.
    # Where no evaluation shows anybody half as good as the best was found to be, the worst of the best few has to do.
    passing = [found for found in (*closer, *curve) if merit(env.spec, found[1]) >= least * best] or finalists[:1]
    likely = (measured(found) for found in passing if merit(env.spec, found[1]) <= (most + NOISE) * best)
    halfway = next((found for found in likely if least * best <= merit(env.spec, found[2]) <= most * best), None)
    return {"expert": expert, "medium": halfway or measured(passing[0])}


def merit(spec: Spec, found: Progress | Outcome) -> float:
    """What teams of a world are told apart by."""
    return float(np.mean(found.success if spec.metric == "success" else found.total))


def leapt_over(spec: Spec, chosen: dict[str, Chosen], medium: tuple[float, float] = MEDIUM) -> bool:
    """Whether no team of the medium range was found."""
    share = merit(spec, chosen["medium"][2]) / max(merit(spec, chosen["expert"][2]), 1e-6)
    return not medium[0] <= share <= medium[1]


def read_curve(folder: Path) -> list[Progress]:
    """Returns the evaluations of a training so far; what its seal does not vouch for any more is an error by name."""
    path = journal_path(folder, "scores")
    if not os.path.lexists(path):
        return []
    described = any(os.path.lexists(folder / name) for name in (SETTINGS, SEAL))
    lines = check_seal(folder)[1]["scores"] if described else read_regular(path)
    try:
        return [from_settings(Progress, line) for line in parse_journal(path, lines)]
    except TypeError as error:
        raise UserError(f"{path} is not the curve of a training ({error}); choose another folder") from error
