"""Which heads other recordings of known and of new tasks would be given."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from finished import BUDGET, STREAM, Skilled, make_run, record_all
from habit import Habit, State
from jaxtyping import Array
from recorded import record

from comad import envs
from comad.cli import main
from comad.datasets import library
from comad.encounters import Encounter, count, meet
from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.methods import METHODS
from comad.runs.record import read_run
from comad.training.lessons import prepare
from comad.types import Batch, PRNGKey, Spec, Stream


@dataclass(frozen=True)
class Counting(Skilled):
    """Knows a task by how many agents it has, unless the actions of its first row add up to an odd number, which looks new."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> State:
        return {**super().init(key, stream, specs, updates), "active": jnp.int32(0), "odd": jnp.float32(0)}

    def begin(self, state: State, task: Array, sample: Batch, key: PRNGKey) -> State:
        known, odd = sample.actions.shape[2] - 2, sample.actions[0].sum() % 2
        head = jnp.where((known < state["finished"]) & (odd == 0), known, state["finished"])
        return {**super().begin(state, task, sample, key), "active": head.astype(jnp.int32), "odd": odd.astype(jnp.float32)}

    def describe(self, state: State) -> State:
        used = jnp.maximum(state["finished"], state["active"] + 1)
        nothing = jnp.zeros(3)
        return {
            "used": used,
            "before": jnp.minimum(used, state["active"]),
            "active": state["active"],
            "scores": jnp.stack([state["odd"], 7.0, 8.0]),
            "own_score": nothing,
            "noise_score": nothing,
        }


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A run with its data, and other recordings of the same tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "habit", Habit())
        patch.setitem(METHODS, "counting", Counting())
        data, other = record_all(tmp_path_factory.mktemp("data")), tmp_path_factory.mktemp("other")
        for task in STREAM.tasks:
            env = envs.make(task.env)
            assert isinstance(env, Navigation)
            record(library.place(env.spec.env, "random", other), env, seed=1)
        make_run(data / "run", data, "counting", Counting())
        yield data, other


def test_known_tasks_should_get_their_own_head_and_new_ones_open_one(folders: tuple[Path, Path]) -> None:
    data, other = folders
    found = list(meet(data / "run", other, 5))
    lessons = prepare(STREAM, "random", BUDGET.batch, other)
    odd = [[int(sample.actions[0].sum()) % 2 for sample in lesson.samples(5)] for lesson in lessons]
    missed = sum(odd[0])
    assert 0 < missed < 5, "the test shows nothing if all samples are alike"
    first, second = (task.name for task in STREAM.tasks)
    assert found == [
        Encounter(first, first, 0, (5 - missed,), missed, (float(np.float32(np.mean(odd[0]))),)),
        Encounter(first, second, None, (0,), 5, (float(np.float32(np.mean(odd[1]))),)),
    ]
    assert [(one.samples, one.right) for one in found] == [(5, 5 - missed), (5, 5)] and count(read_run(data / "run")) == 2


def test_the_command_says_how_many_were_told_rightly(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    data, other = folders
    command = ["heads", str(data / "run"), "--held-out", str(other), "--samples", "5"]
    right = [one.right for one in meet(data / "run", other, 5)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert f"known tasks that got their own head: {right[0]} of 5" in shown and "new tasks that opened a head: 5 of 5" in shown
    assert main([*command, "--json"]) == 0
    assert [one["opened"] for one in json.loads(capsys.readouterr().out)] == [5 - right[0], 5]


def test_what_proves_nothing_is_refused(folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, other = folders
    with pytest.raises(UserError, match=r"cn-2-6x6-9t-2r/random holds what .*run was trained on, which proves nothing; 'comad collect"):
        next(meet(data / "run", data, 1))
    make_run(tmp_path / "habit", data, "habit", Habit())
    with pytest.raises(UserError, match="habit has no heads that recognize anything: its method is habit"):
        next(meet(tmp_path / "habit", other, 1))
    assert main(["heads", str(data / "run"), "--held-out", str(other), "--samples", "0"]) == 2
    assert "--samples must be a whole number x with 1 <= x <= 1000000, not 0" in capsys.readouterr().err
