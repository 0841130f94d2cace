"""Training as a whole: the same end however often it is interrupted, and a clear word when it cannot go on."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from habit import Habit
from recorded import record
from reliability import tried

from comad import envs, metrics, streams
from comad.continual.learner import Continual
from comad.continual.method import Method
from comad.continual.schedules import DataBlock, DataSchedule, Rehearse
from comad.datasets import library
from comad.datasets.store import open_dataset, write
from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.methods import find
from comad.methods.fine_tuning import FineTuning
from comad.runs import checkpoints
from comad.runs.record import read_run
from comad.runs.run import open_run
from comad.runs.seal import seal_run
from comad.training import lessons as lessons_module
from comad.training import loop
from comad.training.lessons import Lesson, prepare
from comad.training.loop import Budget, Evaluated, Event, Heads, Learned, Stopped, check_fit, train
from comad.training.provenance import identify

STREAM = streams.custom(["cn-2-6x6-9t-2r", "cn-3-6x6-9t-2r"])
BUDGET = Budget(updates=23, evaluations=3, episodes=4, batch=8)
SEED = 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for task in STREAM.tasks:
        env = envs.make(task.env)
        assert isinstance(env, Navigation)
        record(library.place(env.spec.env, "random", folder), env)
    return folder


@pytest.fixture(scope="module")
def lessons(data: Path) -> tuple[Lesson, ...]:
    return prepare(STREAM, "random", BUDGET.batch, data)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHUNK", 3)


def follow(folder: Path, lessons: tuple[Lesson, ...], method: Any = None, stop: Callable[[], bool] = lambda: False) -> list[Event]:
    method = method or Habit()
    with open_run(folder, identify("habit", method, STREAM, "random", lessons, SEED, BUDGET)) as run:
        return list(train(method, STREAM, lessons, SEED, BUDGET, run, stop))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def final(folder: Path) -> dict[str, bytes]:
    """What must not depend on interruptions: journals and the last checkpoint."""
    everything = content(folder)
    return {name: everything[name] for name in ("scores.jsonl", "logs.jsonl", "heads.jsonl", "checkpoints/000000047.safetensors")}


def test_a_run_stopped_after_every_chunk_ends_in_the_same_bytes(tmp_path: Path, lessons: tuple[Lesson, ...]) -> None:
    assert isinstance(Habit(), Method)
    whole = follow(tmp_path / "whole", lessons)
    assert [event.when for event in whole if isinstance(event, Heads)] == ["begin", "finish"] * 2
    assert [(event.task, event.point) for event in whole if isinstance(event, Evaluated)] == [
        (task, point) for task in (0, 1) for point in range(4)
    ]
    assert [event.updates for event in whole if isinstance(event, Learned)][-1] == 2 * BUDGET.updates

    pieces = [follow(tmp_path / "cut", lessons, stop=lambda: True)]
    while isinstance(pieces[-1][-1], Stopped):
        pieces.append(follow(tmp_path / "cut", lessons, stop=lambda: True))
    # Intervals of 8, 7 and 8 updates in chunks of 3 make 9 chunks a task; every chunk was a process of its own.
    assert len(pieces) == 18
    assert final(tmp_path / "whole") == final(tmp_path / "cut")
    # Going on with a finished run changes nothing.
    everything = content(tmp_path / "whole")
    assert follow(tmp_path / "whole", lessons) == []
    assert content(tmp_path / "whole") == everything


@dataclass(frozen=True)
class LookBack:
    """The task's own data, and now and then some of the first task's."""

    mixes_tasks: ClassVar[bool] = True
    boundaries: ClassVar[bool] = True

    def blocks(self, seed: int, task: int, num_tasks: int, update: int, count: int) -> list[DataBlock]:
        blocks = [DataBlock(task, update, count)]
        return [*blocks, DataBlock(0, 10_000 + update, 1, kept=12)] if task else blocks


@dataclass(frozen=True)
class Restless(Habit):
    """A habit that looks back at the first task now and then."""

    data: ClassVar[DataSchedule] = LookBack()


def test_a_method_may_choose_its_data_and_is_still_exact(tmp_path: Path, lessons: tuple[Lesson, ...]) -> None:
    follow(tmp_path / "whole", lessons, Restless())
    while isinstance(follow(tmp_path / "cut", lessons, Restless(), stop=lambda: True)[-1], Stopped):
        pass
    assert final(tmp_path / "whole") == final(tmp_path / "cut")
    follow(tmp_path / "plain", lessons)
    assert final(tmp_path / "whole") != final(tmp_path / "plain")
    kept = lessons[0].remembered(12, SEED)
    assert set(lessons[0].remembered(5, SEED).packing.starts) < set(kept.packing.starts)  # a memory that shrinks finds nothing new
    assert len(set(kept.packing.starts)) == 12 and set(kept.packing.starts) <= set(lessons[0].packing.starts)
    assert kept.indices(SEED, 0, 1, 1).moment.shape == lessons[0].indices(SEED, 0, 1, 1).moment.shape


def test_scores_form_the_array_that_metrics_take(tmp_path: Path, lessons: tuple[Lesson, ...]) -> None:
    follow(tmp_path / "run", lessons)
    run = read_run(tmp_path / "run")
    scores = run.score_array("greedy")
    assert scores.shape == (2, 4, 2)
    assert metrics.performance(scores[None])[0] == pytest.approx(np.mean(run.scores[-1]["greedy"]["score"]))
    points = [(line["task"], line["point"], line["update"]) for line in run.scores]
    assert points == [(task, point, update) for task in (0, 1) for point, update in enumerate((0, 8, 15, 23))]
    (tmp_path / "run" / "scores.jsonl").write_text("\n".join(json.dumps(line) for line in run.scores[:-1]) + "\n")
    seal_run(tmp_path / "run")
    with pytest.raises(UserError, match="the evaluation 3 of task 1 is missing"):
        read_run(tmp_path / "run").score_array()


@pytest.mark.promise("not-finite")
def test_a_number_that_is_not_finite_stops_the_run_and_names_the_batch(tmp_path: Path, lessons: tuple[Lesson, ...]) -> None:
    with pytest.raises(UserError) as error:
        follow(tmp_path / "run", lessons, Habit(poison=23 + 10))
    # The chunk before it had ended at update 8 + 3 = 11 of the second task; the last evaluation was at 8.
    assert "loss stopped being finite at update 10 of cn-3-6x6-9t-2r" in str(error.value)
    index = lessons[1].packing.index(SEED, 1, 10)
    episodes = np.flatnonzero(np.isin(lessons[1].dataset.starts, index.moment[index.first]))
    assert f"episodes {', '.join(map(str, episodes))} of" in str(error.value)
    found, skipped = checkpoints.newest(tmp_path / "run")
    assert found is not None and found.position == 24 + 8 and skipped == {}


@dataclass(frozen=True)
class Counting(Habit):
    """A habit whose loss depends on the rewards."""

    def update(self, state: Any, batch: Any, key: Any) -> Any:
        state, logs = super().update(state, batch, key)
        return state, {"loss": logs["loss"] + batch.reward.sum()}


class Poisoned(Lesson):
    """A lesson of whose data one moment was spoiled on its way to the device."""

    def upload(self) -> dict[str, Any]:
        found = super().upload()
        return {**found, "reward": found["reward"].at[int(self.dataset.starts[7])].set(np.nan)}


@pytest.mark.promise("not-finite")
def test_a_nan_in_a_batch_stops_the_run_which_ends_in_the_same_bytes_without_it(tmp_path: Path, lessons: tuple[Lesson, ...]) -> None:
    poisoned = (lessons[0], Poisoned(**vars(lessons[1])))
    with jax.debug_nans(False), pytest.raises(UserError, match=r"loss stopped being finite at update \d+ of cn-3") as error:
        follow(tmp_path / "run", poisoned, Counting())
    episodes = re.search(r"episodes ([\d, ]+) of", str(error.value))
    assert episodes and "7" in episodes[1].split(", ")
    found, skipped = checkpoints.newest(tmp_path / "run")
    assert found is not None and found.position >= 24 and skipped == {}
    follow(tmp_path / "run", lessons, Counting())
    follow(tmp_path / "whole", lessons, Counting())
    assert final(tmp_path / "run") == final(tmp_path / "whole")


class Fragile:
    """CN as a world outside JAX that breaks down at some step."""

    def __init__(self, env: Navigation, steps: int) -> None:
        self.env, self.left, self.spec = env, steps, env.spec
        self.reset, self.step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))

    def reset_many(self, seeds: np.ndarray) -> Any:
        return self.reset(jax.vmap(jax.random.key)(seeds))

    def step_many(self, world: Any, actions: np.ndarray, active: np.ndarray) -> Any:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the game has crashed")
        return self.step(world, actions, jax.random.split(jax.random.key(0), len(actions)))

    def scene(self, world: Any) -> Any:
        return self.env.scene(world)


@pytest.mark.slow
@pytest.mark.promise("world-raises")
def test_a_world_that_raises_stops_the_run_which_then_ends_in_the_same_bytes(tmp_path: Path, lessons: tuple[Lesson, ...]) -> None:
    env = lessons[0].env
    assert isinstance(env, Navigation)

    def play(folder: Path, steps: int) -> None:
        follow(folder, (replace(lessons[0], env=Fragile(env, steps)), lessons[1]))

    play(tmp_path / "whole", 0)
    for steps in (1, 30, 60, 100):
        with pytest.raises(RuntimeError, match="the game has crashed"):
            play(tmp_path / str(steps), steps)
        play(tmp_path / str(steps), 0)
        assert final(tmp_path / str(steps)) == final(tmp_path / "whole")
        tried()


def test_other_settings_are_refused_by_name(tmp_path: Path, lessons: tuple[Lesson, ...]) -> None:
    follow(tmp_path / "run", lessons)
    with pytest.raises(UserError, match=r"settings.rate is 0.1 there and 0.2 here"):
        follow(tmp_path / "run", lessons, Habit(rate=0.2))


def test_missing_data_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cn-2/expert; 'comad collect cn --quality expert --data .*' makes it"):
        prepare(streams.find("cn"), "expert", 32, tmp_path)
    with pytest.raises(UserError, match=r"'comad collect --tasks cn-2-6x6-9t-2r cn-3-6x6-9t-2r --quality expert"):
        prepare(STREAM, "expert", 32, tmp_path)


def test_data_of_another_world_or_with_damage_is_refused(tmp_path: Path) -> None:
    record(library.place("cn-2-6x6-9t-2r", "random", tmp_path), Navigation(2, 6, limit=8))
    with pytest.raises(UserError, match=r"recorded in another world than .*: limit 8 instead of 9"):
        prepare(streams.custom(["cn-2-6x6-9t-2r"]), "random", 8, tmp_path)
    place = library.place("cn-2-6x6-9t-2r", "random", tmp_path)
    file = record(place, Navigation(2, 6, limit=9)).path / "actions.npy"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(UserError, match=r"actions\.npy: its bytes are not those that were written"):
        prepare(streams.custom(["cn-2-6x6-9t-2r"]), "random", 8, tmp_path)


def test_data_without_an_episode_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = library.place("cn-2-6x6-9t-2r", "random", tmp_path)
    full = record(place, Navigation(2, 6, limit=9))
    with pytest.raises(UserError, match="not written, because it would hold no episode to learn from"):
        write(tmp_path / "nothing", full.spec, "random", {name: full.read(name, slice(0)) for name in full.arrays}, {})
    emptied = replace(full, arrays={name: array[:0] for name, array in full.arrays.items()})
    monkeypatch.setattr(lessons_module, "open_dataset", lambda path: emptied)
    with pytest.raises(UserError, match=r"random: episode\.length: holds no episode to learn from; collect or import it again"):
        prepare(streams.custom(["cn-2-6x6-9t-2r"]), "random", 8, tmp_path)


def test_rehearsal_without_memory_is_fine_tuning(
    tmp_path: Path,
    lessons: tuple[Lesson, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Both use one program: programs of chunks of several sizes may differ in last bits.
    monkeypatch.setattr(loop, "FEW", 0)
    twice = (lessons[0], replace(lessons[0], number=1))
    follow(tmp_path / "plain", twice, find("ft"))
    follow(tmp_path / "forgetful", twice, Continual(FineTuning(), Rehearse(memory=0)))
    assert final(tmp_path / "plain") == final(tmp_path / "forgetful")


def test_a_stream_of_more_tasks_than_updates_can_be_numbered_for_is_refused(lessons: tuple[Lesson, ...]) -> None:
    many = tuple(replace(lessons[0], number=number) for number in range(128))
    with pytest.raises(UserError, match="learn at most 127 tasks, and 'custom' has 128"):
        check_fit(find("rehearsal"), STREAM, many, 10)


def test_a_budget_without_room_for_its_evaluations_is_refused() -> None:
    with pytest.raises(UserError, match="20 evaluations do not fit into 10 updates"):
        Budget(updates=10)


def test_a_sample_shows_the_same_moments_to_every_run(lessons: tuple[Lesson, ...]) -> None:
    first, again = lessons[0].sample(), lessons[0].sample()
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), first, again)))
    assert first.present.shape[0] == 8 * lessons[0].packing.rows
    assert open_dataset(lessons[0].dataset.path).content == lessons[0].dataset.content
