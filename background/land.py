"""Takes the behavior policies of finished jobs into the package: every file as its job wrote it, checked twice."""

from collections.abc import Iterator
from pathlib import Path

from background.jobs import Job, Plan
from background.state import State, outputs, standing
from comad.errors import UserError
from comad.experts.library import read_card
from comad.files import read_regular, sha256, write_bytes

FOLDER = "weights/"
"""Outputs below it are weights and their cards."""


def land(state: State, plan: Plan, package: Path) -> Iterator[str]:
    """Copies weights and cards that are not in the package yet; yields a line for each policy.

    Args:
        state: the folder of the jobs.
        plan: all jobs; those that are not done are left out.
        package: the folder of weights that come with the package.
    """
    for job in plan.jobs:
        if standing(state, job) == "done":
            yield from _land_one(state, job, package)


def _land_one(state: State, job: Job, package: Path) -> Iterator[str]:
    found = {name.removeprefix(FOLDER): path for name, path in outputs(state, job).items() if name.startswith(FOLDER)}
    for name, card_path in found.items():
        if not name.endswith(".json"):
            continue
        card, weights = read_card(card_path), name.removesuffix(".json") + ".safetensors"
        if card.sha256 != sha256(found[weights]):
            raise UserError(f"{card_path} is not the card of the weights beside it (SHA-256 differs)")
        if (package / name).exists() and read_card(package / name) == card:
            continue
        for part in (weights, name):  # the card last, which makes the weights count
            write_bytes(package / part, read_regular(found[part]))
        yield f"{card.env} {card.quality}: return {card.total:.3f}, success {card.success:.3f} after {card.steps:,} steps"
