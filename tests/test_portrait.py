"""Portraits of runs: replays as they were played, skills in one plane, weights of heads."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finished import LAST_POSITION, STREAM, Skilled, make_run, record_all
from habit import Habit
from learners import make, small_batch
from recorded import FULL_VIEW, record

from comad.continual.method import Portrays
from comad.datasets import library
from comad.datasets.packing import Pieces
from comad.envs.episodes import Episode
from comad.envs.navigation import Navigation
from comad.envs.scene import AGENT, Mark, Scene
from comad.errors import UserError
from comad.evaluation import Team
from comad.methods import METHODS
from comad.methods.comad import Comad
from comad.portrait import Plane, Sample, Sitter, by_tenth, drawing, find_sitter, pick_points, portray, write
from comad.runs.folder import PORTRAIT
from comad.tokens import complete, no_actions
from comad.training.lessons import Lesson


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "habit", Habit())
        patch.setitem(METHODS, "skilled", Skilled())
        yield record_all(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def sitter(data: Path) -> Sitter:
    make_run(data / "run", data, "skilled", Skilled())
    return find_sitter(data / "run", data)


@pytest.fixture(scope="module")
def portrait(sitter: Sitter) -> dict[str, Any]:
    advanced: list[None] = []
    portrait = portray(sitter, lambda: advanced.append(None))
    assert len(advanced) == sitter.parts == 6
    return portrait


def test_a_replay_is_the_episode_played_by_hand(sitter: Sitter, portrait: dict[str, Any]) -> None:
    trained, shown = sitter.trained, portrait["replays"][1]
    env: Any = trained.worlds[1]
    team = Team(trained.state, jnp.int32(1), jnp.array(False), trained.method)
    act, advance, key = jax.jit(lambda *now: team.act(*now)), jax.jit(env.step), jax.random.fold_in(jax.random.key(0), 0)
    world, step = jax.jit(env.reset)(jax.random.fold_in(key, 0))
    memory, actions, total = team.start(env.spec), no_actions(env.spec), 0.0
    for moment, (frame, so_far) in enumerate(zip(shown["frames"], shown["rewards"], strict=True)):
        total += float(step.reward)
        marks = env.scene(world).marks
        assert [drawn(shown["palette"][number], row, column) for number, row, column in frame] == list(marks)
        assert so_far == pytest.approx(total, abs=1e-3)
        # Two of three heads were opened.
        assert np.allclose(shown["familiarity"][moment], np.arange(2) + float(step.state.agents[0, 0]), atol=1e-3)
        actions, memory = act(memory, complete(step.tokens, actions, env.spec), step.available, jax.random.fold_in(key, 2 * moment + 1))
        ended, success = bool(step.ended), bool(step.success)
        world, step = advance(world, actions, jax.random.fold_in(key, 2 * moment + 2))
    assert ended and shown["success"] == success and shown["total"] == pytest.approx(total, abs=1e-3) and shown["length"] == moment
    # Zones and diamonds in two colors, three numbered discs: however many moments there are.
    assert len(shown["palette"]) <= 7 and (shown["rows"], shown["columns"], shown["head"]) == (6, 6, 1)


class Drawn(Episode):
    """An episode of one moment with a line in it."""

    @property
    def scenes(self) -> list[Scene]:
        return [Scene(4, 4, (Mark("line", 0.0, 1.0, AGENT, end=(2.5, 3.0)), Mark("disc", 1.0, 2.0, AGENT)), "")]


def test_a_line_has_two_places() -> None:
    situation = jax.eval_shape(FULL_VIEW.reset, jax.random.key(0))[1].state
    shown = drawing(Drawn(FULL_VIEW, True, 0.0, 0, None, np.zeros(1), situation))
    assert shown["frames"] == [[[0, 0.0, 1.0, 2.5, 3.0], [1, 1.0, 2.0]]]


def test_returns_add_up_to_the_end_of_the_episode() -> None:
    situation = jax.eval_shape(FULL_VIEW.reset, jax.random.key(0))[1].state
    episode = Episode(FULL_VIEW, True, 0.75, 2, None, np.array([0.0, 0.25, 0.5, 9.0]), situation)
    assert episode.returns.tolist() == [0.0, 0.25, 0.75]


def drawn(kind: Any, row: float, column: float) -> Mark:
    shape, color, label, size = kind
    red, green, blue = bytes.fromhex(color[1:])
    return Mark(shape, row, column, (red, green, blue), label, size)


def test_a_stage_per_task_shows_the_skills_of_its_own_time(sitter: Sitter, portrait: dict[str, Any]) -> None:
    stages = portrait["skills"]["stages"]
    assert [stage["after"] for stage in stages] == [task.name for task in STREAM.tasks]
    assert stages[0]["task"] == stages[0]["head"] == [0] * 150 and stages[1]["task"] == stages[1]["head"] == [0] * 150 + [1] * 150
    samples = [sampled(lesson) for lesson in sitter.lessons]
    picked = [pick_points(sample, task) for task, sample in enumerate(samples)]
    owns = [np.asarray(sample.batch.tokens.own)[points.place][:, :3] for sample, points in zip(samples, picked, strict=True)]
    plane = Plane.fit(np.concatenate([21 * owns[0], 22 * owns[1]]))
    expected = plane.project(11 * owns[0]), plane.project(np.concatenate([21 * owns[0], 22 * owns[1]]))
    assert all(np.allclose(stage["points"], points, atol=1e-3) for stage, points in zip(stages, expected, strict=True))
    assert np.allclose(portrait["skills"]["explained"], plane.explained, atol=1e-3)
    assert stages[0]["time"] == stages[1]["time"][:150] and min(stages[1]["time"]) == 0.0 < max(stages[1]["time"]) < 1.0


def test_points_are_different_histories_at_whose_end_somebody_acted(sitter: Sitter) -> None:
    sample = sampled(sitter.lessons[0])
    rows, moments, agents = pick_points(sample, 0).place
    assert np.asarray(sample.batch.step)[rows, moments].all() and len(set(zip(rows, moments, agents, strict=True))) == 150


def test_weights_of_the_opened_heads_sum_to_one(sitter: Sitter, portrait: dict[str, Any]) -> None:
    assert [entry["task"] for entry in portrait["reuse"]] == [task.name for task in STREAM.tasks]
    weights = np.array([entry["weights"] for entry in portrait["reuse"]])
    assert weights.shape == (2, 10, 2) and np.allclose(weights.sum(-1), 1.0, atol=2e-3)
    sample = sampled(sitter.lessons[1])
    assert np.allclose(weights[1, :, 1:], by_tenth(np.asarray(sample.batch.state.agents)[None, ..., 0, 0], sample), atol=1e-3)


def test_the_plane_lies_where_a_cloud_is_widest() -> None:
    # Along (3, 4, 0) / 5 at -2 and 2, along the third axis at -1 and 1: variances 4 and 1 around the center.
    center, along = np.array([1.0, 1.0, 1.0]), np.array([0.6, 0.8, 0.0])
    cloud = np.array([center + 2 * a * along + np.array([0.0, 0.0, b]) for a in (-1, 1) for b in (-1, 1)])
    plane = Plane.fit(cloud)
    assert np.allclose(plane.explained, [0.8, 0.2]) and np.allclose(plane.directions.T, np.array([along, np.array([0.0, 0.0, 1.0])]))
    assert np.allclose(plane.project(cloud), [[-2, -1], [-2, 1], [2, -1], [2, 1]])
    assert np.allclose(plane.project(center + 3 * along), [3, 0])
    line = Plane.fit(np.array([[1.0], [3.0]]))
    assert np.allclose(line.explained, [1, 0]) and np.allclose(line.project(np.array([[4.0]])), [[2, 0]])
    assert np.allclose(Plane.fit(np.ones((3, 2))).explained, 0.0)


def sampled(lesson: Lesson) -> Sample:
    return Sample(lesson.sample(), *lesson.clock())


def test_a_moment_knows_when_it_was_whether_episodes_are_whole_or_cut(sitter: Sitter) -> None:
    whole = sitter.lessons[0]
    pieces = Pieces(tuple(whole.dataset.starts.tolist()), tuple(whole.dataset.lengths.tolist()), 12, window=2)
    for lesson in (whole, replace(whole, packing=pieces)):
        sample = sampled(lesson)
        there, first, step = (np.asarray(flags) for flags in (sample.batch.present, sample.batch.first, sample.batch.step))
        number, length = sample.number, sample.length
        assert (number[there] >= 0).all() and (number[there] <= length[there]).all() and (number[first & there] == 0).all()
        assert (number[step] < length[step]).all() and (np.diff(number, axis=1)[step[:, :-1]] == 1).all()
    assert len(np.unique(number[there])) > 3, "not only beginnings"


def test_tenths_of_short_episodes_are_filled_by_the_states_that_last_through_them() -> None:
    # Nothing in the first row; two states and three in the second, then padding; one episode of two states in the third.
    there = jnp.array([[letter == "x" for letter in row] for row in ("......", "xxxxx.", "xx....")])
    number = np.array([[0] * 6, [0, 1, 0, 1, 2, 0], [0, 1, 0, 0, 0, 0]])
    length = np.array([[1] * 6, [1, 1, 2, 2, 2, 1], [1] * 6])
    sample = Sample(eqx.tree_at(lambda batch: batch.present, small_batch(), there), number, length)
    values = np.array([[[99] * 6, [1, 2, 3, 6, 9, 99], [5, 6, 99, 99, 99, 99]]], float)
    means = by_tenth(values, sample)[:, 0]
    # The fourth tenth is shared: the middle state of three begins a third of the way.
    assert np.allclose(means[:3], (1 + 3 + 5) / 3) and np.allclose(means[3], (1 + 5 + 3 / 3 + 6 * 2 / 3) / 3)
    assert np.allclose(means[4], (1 + 5 + 6) / 3) and np.allclose(means[5], (2 + 6 + 6) / 3) and np.allclose(means[7:], (2 + 6 + 9) / 3)


def test_methods_show_what_they_have(data: Path) -> None:
    make_run(data / "habit", data, "habit", Habit())
    found = portray(find_sitter(data / "habit", data / "nowhere"))  # nothing of the data is shown, so none is needed
    assert found["skills"] is None and found["reuse"] is None and [shown["familiarity"] for shown in found["replays"]] == [[], []]
    assert found["position"] == LAST_POSITION and isinstance(Comad(), Portrays) and not isinstance(METHODS["ft"], Portrays)


def test_a_method_without_skills_still_tells_what_heads_count_for(data: Path, portrait: dict[str, Any]) -> None:
    make_run(data / "bare", data, "skilled", Skilled(skill_size=0))
    found = portray(find_sitter(data / "bare", data))
    assert found["skills"] is None and found["reuse"] == portrait["reuse"]


@pytest.mark.slow
def test_classes_of_skills_are_shown_by_their_probabilities() -> None:
    method = Comad(skill="categorical")
    state = make(method)
    shown = np.asarray(jax.jit(method.inferred_skills)(state, small_batch(), jnp.int32(1)))
    assert shown.shape == (*small_batch().actions.shape, 16) and np.allclose(shown.sum(-1), 1.0, atol=1e-5)
    assert np.all((shown > 0) & (shown < 1))


@pytest.mark.slow
@pytest.mark.parametrize("method", [Comad(), Comad(skill="none", expand=False)])
def test_comad_sits(data: Path, tmp_path: Path, method: Comad) -> None:
    ends = make_run(tmp_path / "run", data, "comad", method)
    found = portray(find_sitter(tmp_path / "run", data))
    weights = np.array([entry["weights"] for entry in found["reuse"]])
    assert weights.shape == (2, 10, int(ends[-1].library.used)) and np.allclose(weights.sum(-1), 1.0, atol=2e-3)
    assert (found["skills"] is None) == (method.skill == "none") and int(ends[-1].library.used) == 1 + method.expand


def test_what_is_written_is_small_and_the_same_again(portrait: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / PORTRAIT).write_text("an older one")
    size = write(tmp_path, portrait)
    assert json.loads((tmp_path / PORTRAIT).read_text()) == portrait and (tmp_path / PORTRAIT).stat().st_size == size < 100_000
    assert portrait.keys() == {"version", "position", "replays", "skills", "reuse"}


def test_runs_that_cannot_sit_are_refused(data: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "half", data, "habit", Habit(), tasks=1)
    with pytest.raises(UserError, match="half is not finished: the evaluation 0 of task 1 is missing"):
        find_sitter(tmp_path / "half", data)
    make_run(tmp_path / "run", data, "habit", Habit())
    first = tmp_path / "run" / "checkpoints" / "000000001.safetensors"
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match=r"run has 1 sound checkpoints of the ends of its 2 tasks \(000000001.safetensors is damaged"):
        find_sitter(tmp_path / "run", data)
    for path in first.parent.iterdir():
        path.unlink()
    with pytest.raises(UserError, match="run has no checkpoint to load; 'comad train' makes one"):
        find_sitter(tmp_path / "run", data)


def test_data_that_is_missing_or_not_the_runs_own_is_named(data: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "run", data, "skilled", Skilled())
    with pytest.raises(
        UserError,
        match=r"there is no dataset .*cn-2-6x6-9t-2r/random; there are expert, medium, mixed, and what 'comad data import' took over",
    ):
        find_sitter(tmp_path / "run", tmp_path)
    record(library.place(STREAM.tasks[0].env, "random", tmp_path), FULL_VIEW, seed=1)
    record(library.place(STREAM.tasks[1].env, "random", tmp_path), Navigation(3, 6, limit=9))
    with pytest.raises(UserError, match=r"run was trained on other data than is in .*cn-2-6x6-9t-2r/random"):
        find_sitter(tmp_path / "run", tmp_path)
