"""An expert's training with a stand-in for the learner, killed at failpoints. Run as a program: JAX starts afresh in every copy of it.

Prints, for every failpoint it is given, how the process ended, what it said when it went on, and what remains.
"""

import dataclasses
import json
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from counting import no_sync
from jaxtyping import Array
from killing import killed, leftovers

from comad.envs.navigation import Navigation
from comad.envs.rollout import Outcome
from comad.experts import qmix, training
from comad.experts.agent import Agent
from comad.experts.library import Card
from comad.experts.qmix import Qmix
from comad.files import sha256
from comad.runs import checkpoints
from comad.settings import settings
from comad.types import Spec

ENV = Navigation(2, 5, limit=6)


class Pupil(eqx.Module):
    """The state of a training: a team of one weight that depends on all before it."""

    iteration: Array
    weight: Array


@dataclass(frozen=True)
class FiveTurns:
    """A trainer that learns nothing, quickly."""

    steps: int = 50
    iterations: int = 5
    steps_per_iteration: int = 10

    def init(self, env: Any, key: Array) -> Pupil:
        return Pupil(jnp.int32(0), jnp.float32(1.5))

    def begin_from(self, state: Pupil, team: Array) -> Pupil:
        return Pupil(state.iteration, team)

    def advance(self, env: Any, state: Pupil, iterations: int) -> tuple[Pupil, float]:
        for _ in range(iterations):
            state = Pupil(state.iteration + 1, state.weight * 1.7 + state.iteration)
        return state, float(state.weight)

    def team(self, state: Pupil) -> Array:
        return state.weight

    def blank(self, spec: Spec) -> Array:
        return jnp.float32(0.0)

    def player(self, team: Array, spec: Spec) -> Any:
        return team


def evaluate(env: Any, weight: Array, key: Array, episodes: int) -> Outcome:
    """As if a team of that weight had played."""
    value = weight[None]
    return Outcome(total=value, success=value > 3, length=value.astype(int))


def shipped_in_small() -> tuple[Agent, Card]:
    """An expert and its card."""
    trainer = Qmix(width=8, num_pools=1)
    agent = qmix.init(trainer, ENV, jax.random.key(0)).online.agent
    spec = ENV.spec
    made = ("qmix", settings(trainer), "", 0, 64, 0.1, 10, 0.5, 0.5, 3.0, "comad experts train")
    return agent, Card(spec.env, spec.rules, "expert", *made)


def stand_in() -> None:
    """Nobody plays, and nobody waits for the disk."""
    setattr(training, "evaluate", evaluate)  # noqa: B010
    os.fsync = no_sync


def train(folder: Path, stop: int = 100) -> list[str]:
    """Train to the end, or walk away after some evaluations; what was told on the way."""
    told: list[str] = []
    for number, _ in enumerate(training.train(ENV, FiveTurns(), 0, folder, every=10, tell=told.append), start=1):
        if number == stop:
            break
    return told


def in_a_copy(folder: Path, stop: int = 100) -> None:
    """The same elsewhere; what was told goes into a file."""
    killed(lambda: (folder.parent / f"{folder.name}.told").write_text(json.dumps(train(folder, stop))), "nowhere")


def told(folder: Path) -> list[str]:
    return list(json.loads((folder.parent / f"{folder.name}.told").read_text()))


def end(folder: Path) -> dict[str, Any]:
    """What must not depend on interruptions."""
    found, skipped = checkpoints.newest(folder)
    curve = [dataclasses.replace(line, seconds=0.0) for line in training.read_curve(folder)]
    teams = {path.name: sha256(path) for path in sorted((folder / "teams").iterdir())}
    state = sha256(found.path) if found else ""
    return {"state": state, "skipped": skipped, "teams": teams, "curve": [dataclasses.asdict(line) for line in curve]}


def main(folder: Path, points: list[str]) -> dict[str, Any]:
    in_a_copy(folder / "whole")
    results: dict[str, Any] = {"whole": end(folder / "whole")}
    for point in points:
        place = folder / point.replace(":", "-")
        code = killed(partial(train, place), point)
        in_a_copy(place)
        results[point] = {"code": code, "told": told(place), "left": [str(path) for path in leftovers(place)], **end(place)}
    return results


if __name__ == "__main__":
    stand_in()
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))
