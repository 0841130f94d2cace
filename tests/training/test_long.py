"""Worlds of long episodes: what is decided for them where nothing is given, and that methods learn from pieces of them."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiming import Aiming
from recorded import FULL_VIEW, record

from comad.continual.learner import Continual
from comad.continual.method import settled
from comad.methods import METHODS, find
from comad.methods.comad import Comad
from comad.methods.comad_plus import ComadPlus
from comad.runs.run import open_run
from comad.settings import settings
from comad.streams import custom
from comad.training import loop
from comad.training.lessons import Lesson, _pack
from comad.training.loop import WINDOW, Budget, train, window_of
from comad.training.provenance import identify
from comad.types import Task

ENV = Aiming(limit=12)
STREAM = custom(["up", "down"])


def test_what_is_not_given_follows_from_the_world() -> None:
    assert settings(Budget.of(ENV.spec, 100, None, 32, None)) == {"updates": 100, "evaluations": 5, "episodes": 32, "batch": 128}
    assert Budget.of(FULL_VIEW.spec, 100, None, 32, None) == Budget(100, 20, 32, 32)
    assert Budget.of(ENV.spec, 100, 7, 32, 9) == Budget(100, 7, 32, 9)


def test_agents_remember_where_actions_are_numbered_and_elsewhere_if_asked() -> None:
    assert settled(Continual(), FULL_VIEW.spec) == Continual(recurrent=True)
    assert settled(Continual(), ENV.spec) == Continual(recurrent=False)
    assert settled(Comad(recurrent=True), ENV.spec) == Comad(recurrent=True) and not settled(Comad(), ENV.spec).recurrent
    # COMAD-plus only where something is hidden.
    partly = dataclasses.replace(FULL_VIEW.spec, full_view=False)
    assert [settled(ComadPlus(), spec).recurrent for spec in (FULL_VIEW.spec, partly, ENV.spec)] == [False, True, False]
    assert settled(ComadPlus(recurrent=True), FULL_VIEW.spec).recurrent
    specs = (ENV.spec,) * 2
    assert window_of(Continual(), STREAM, specs) == 1 and window_of(Continual(), STREAM, (FULL_VIEW.spec,) * 2) is None
    assert window_of(Continual(recurrent=True), STREAM, specs) == window_of(find("odis"), STREAM, specs) == WINDOW


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_from_pieces(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHUNK", 2)
    method: Any = settled(find(name), ENV.spec)
    dataset = record(tmp_path / "data", ENV)
    budget, stream = Budget(4, 1, 2, 16), STREAM
    packing = _pack(dataset, budget.batch, window_of(method, stream, (ENV.spec,) * 2))
    lessons = tuple(Lesson(number, Task(task.name, task.name), ENV, dataset, packing) for number, task in enumerate(stream.tasks))
    with open_run(tmp_path / "run", identify(name, method, stream, "random", lessons, 0, budget)) as run:
        events = list(train(method, stream, lessons, 0, budget, run))
    assert len([event for event in events if isinstance(event, loop.Evaluated)]) == 4


@pytest.mark.slow
def test_fine_tuning_from_steps_learns_to_do_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Random guesses, good ones weighed more: what is learned is better than what was recorded.
    method = settled(Continual(temperature=0.1, learning_rate=2e-3), ENV.spec)
    dataset, stream = record(tmp_path / "data", ENV, episodes=400), custom(["only"])
    budget = Budget(600, 1, 64, 256)
    lesson = Lesson(0, stream.tasks[0], ENV, dataset, _pack(dataset, budget.batch, 1))
    with open_run(tmp_path / "run", identify("ft", method, stream, "random", (lesson,), 0, budget)) as run:
        *_, last = (event for event in train(method, stream, (lesson,), 0, budget, run) if isinstance(event, loop.Evaluated))
    assert last.scores["greedy"]["return"][0] > dataset.recorded.total + 1.0
    assert np.isfinite(last.scores["sampled"]["return"]).all()
