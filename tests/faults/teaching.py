"""An expert's training with a stand-in for the learner, killed at failpoints. Run as a program: JAX starts afresh in every copy of it.

Prints, for every failpoint it is given, how the process ended, what it said when it went on, and what remains.
"""

import dataclasses
import json
import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from counting import no_sync
from jaxtyping import Array
from killing import killed, leftovers

from comad.envs.navigation import Navigation
from comad.envs.rollout import Outcome
from comad.experts import training
from comad.experts.qmix import Qmix
from comad.files import sha256
from comad.runs import checkpoints

ENV = Navigation(2, 5, limit=6)
FIVE_TURNS = Qmix(num_worlds=1, unroll=10, steps=50)


class Pupil(eqx.Module):
    """Its state: a team of one weight that depends on all before it."""

    iteration: Array
    online: Any


def init(trainer: Qmix, env: Any, key: Array) -> Pupil:
    return Pupil(jnp.int32(0), SimpleTeam(jnp.float32(1.5)))


class SimpleTeam(eqx.Module):
    agent: Array


def learn(trainer: Qmix, env: Any, state: Pupil, count: int) -> tuple[Pupil, float]:
    weight = state.online.agent * 1.7 + state.iteration
    return Pupil(state.iteration + 1, SimpleTeam(weight)), float(weight)


def evaluate(env: Any, agent: Array, key: Array, episodes: int) -> Outcome:
    value = agent[None]
    return Outcome(total=value, success=value > 3, length=value.astype(int))


def stand_in() -> None:
    """Put the stand-in in the learner's place."""
    for name, stand_in in (("qmix", SimpleNamespace(init=init, train=learn)), ("evaluate", evaluate)):
        setattr(training, name, stand_in)
    os.fsync = no_sync


def train(folder: Path, stop: int = 100) -> list[str]:
    """Train to the end, or walk away after some evaluations; what was told on the way."""
    told: list[str] = []
    for number, _ in enumerate(training.train(ENV, FIVE_TURNS, 0, folder, every=10, tell=told.append), start=1):
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
    curve = [dataclasses.replace(line, seconds=0.0) for line in training._read_curve(folder)]
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
