"""Policies of finished jobs come into the package as their jobs wrote them, and only those."""

import shutil
from pathlib import Path

import pytest

from background import state as states
from background.jobs import Job, Plan
from background.land import land
from background.state import State
from comad.errors import UserError
from comad.experts.library import SHIPPED, read_card

NAMES = ("weights/cn-2/expert.safetensors", "weights/cn-2/expert.json")


def finished(folder: Path, name: str, task: str = "cn-2") -> tuple[State, Job]:
    """Returns a job that has trained a policy."""
    source = next(path for path in (SHIPPED / task / "expert.json", SHIPPED / task / "expert-related.json") if path.exists())
    state, job = State(folder), Job(name, "policies", "0" * 40, ("train",), NAMES, 1.0)
    states.begin(state, job)
    (state.work(job) / "weights" / "cn-2").mkdir(parents=True)
    for output in NAMES:
        shutil.copy(source.with_suffix(Path(output).suffix), state.work(job) / output)
    assert states.conclude(state, job) == ""
    return state, job


def test_a_finished_policy_comes_into_the_package_once(tmp_path: Path) -> None:
    state, job = finished(tmp_path / "state", "one")
    waiting = Job("two", "policies", "0" * 40, ("train",), NAMES, 1.0)
    package = tmp_path / "package"
    (line,) = land(state, Plan((), (job, waiting)), package)
    card = read_card(package / "cn-2" / "expert.json")
    assert line.startswith(f"cn-2 {card.quality}: return {card.total:.3f}")
    for output in NAMES:
        assert (package / output.removeprefix("weights/")).read_bytes() == (state.work(job) / output).read_bytes()
    assert list(land(state, Plan((), (job, waiting)), package)) == []


def test_a_policy_that_changed_since_or_is_not_its_cards_is_refused(tmp_path: Path) -> None:
    state, job = finished(tmp_path / "state", "one")
    (state.work(job) / NAMES[0]).write_bytes(b"other")
    with pytest.raises(UserError, match="is not as the job wrote it"):
        list(land(state, Plan((), (job,)), tmp_path / "package"))
    assert states.conclude(state, job) == ""  # as if the job had written it so
    with pytest.raises(UserError, match="is not the card of the weights beside it"):
        list(land(state, Plan((), (job,)), tmp_path / "package"))
    assert not (tmp_path / "package").exists()
