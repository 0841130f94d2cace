"""A run from the inside, as plain values that need no JAX to draw: replays, the plane of its skills, and which heads are used again."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from comad import checkpoint
from comad.continual.method import Portrays, Recognizes
from comad.continual.omiga import acting
from comad.envs.episodes import Episode, watch
from comad.errors import UserError
from comad.evaluation import Team
from comad.files import write_bytes
from comad.policy import Trained, restore
from comad.runs import checkpoints
from comad.runs.checkpoints import Checkpoint
from comad.runs.folder import PORTRAIT, checkpoint_files
from comad.runs.record import PORTRAIT_VERSION
from comad.training.lessons import Lesson, prepare
from comad.training.loop import window_of
from comad.types import Batch, StateTokens

SEED = 0
"""Of the replays: with it 'comad play RUN' shows the same episodes."""
POINTS = 150
"""Skills shown per task, at most."""
TENTHS = 10
DIGITS = 3
SMALLEST_EXTENT = 1e-9
"""Of a plane: points closer together than this are one."""


@dataclass(frozen=True)
class Sitter:
    """A finished run, with all that its portrait is made from."""

    trained: Trained
    ends: tuple[Checkpoint, ...]
    """The checkpoints kept at the end of each task."""
    lessons: tuple[Lesson, ...]
    """The recorded data of each task; empty if the method shows nothing of it."""

    @property
    def parts(self) -> int:
        """Pieces of work in a portrait: a replay per task and, where there is something to show, its skills and its re-use."""
        return len(self.ends) * (3 if self.lessons else 1)


def find_sitter(path: Path, data: Path | None = None) -> Sitter:
    """Load a run; one that is not finished, has lost a checkpoint or has other data now is refused."""
    trained = restore(path)
    trained.record.score_array()  # says what is missing of a run that is not finished
    lessons: tuple[Lesson, ...] = ()
    if isinstance(trained.method, Portrays):
        identity = trained.record.settings["identity"]
        window = window_of(trained.method, trained.stream, tuple(env.spec for env in trained.worlds))
        lessons = prepare(trained.stream, identity["quality"], identity["budget"]["batch"], data, window)
        for lesson in lessons:
            if identity["datasets"].get(lesson.env.spec.env) != lesson.dataset.content:
                raise UserError(f"{path} was trained on other data than is in {lesson.dataset.path}; give the folder of its own as --data")
    return Sitter(trained, find_ends(path, [task.name for task in trained.stream.tasks]), lessons)


def find_ends(path: Path, tasks: Sequence[str]) -> tuple[Checkpoint, ...]:
    """The checkpoints that a run kept at the end of each of its tasks, in their order."""
    ends: list[Checkpoint] = []
    why = ""
    for file in checkpoint_files(path, ".json"):
        try:
            found = checkpoints.load(path, file)
        except UserError as error:
            why = f" ({error})"
        else:
            ends += [found] if found.milestone else []
    if len(ends) != len(tasks):
        raise UserError(
            f"{path} has {len(ends)} sound checkpoints of the ends of its {len(tasks)} tasks{why}; 'comad train --fresh' makes them again"
        )
    return tuple(ends)


def portray(sitter: Sitter, advance: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """The portrait of a run; ``advance`` is called after each of its parts."""
    portrait: dict[str, Any] = {
        "version": PORTRAIT_VERSION,
        "position": sitter.ends[-1].position,
        "replays": [],
        "skills": None,
        "reuse": None,
    }
    for task in range(len(sitter.ends)):
        portrait["replays"].append(replay(sitter.trained, task))
        advance()
    if sitter.lessons:
        samples = [Sample(lesson.sample(), *lesson.clock()) for lesson in sitter.lessons]
        portrait["skills"] = skill_plane(sitter, samples, advance)
        portrait["reuse"] = reuse(sitter, samples, advance)
    return portrait


def write(path: Path, portrait: dict[str, Any]) -> int:
    """Put a portrait into its run's folder, in place of an older one; tells how many bytes it takes."""
    data = (json.dumps(portrait, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n").encode()
    write_bytes(path / PORTRAIT, data)
    return len(data)


def replay(trained: Trained, task: int) -> dict[str, Any]:
    """One episode of a task, with drawn skills and actions, as the head plays it that was last chosen for it."""
    head = trained.heads[task]
    player = Team(trained.state, jnp.int32(head), jnp.array(False), trained.method)
    episode = watch(trained.worlds[task], player, SEED)
    return {
        "task": trained.stream.tasks[task].name,
        "world": trained.stream.tasks[task].env,
        "head": head,
        "success": episode.success,
        "total": rounded(episode.total),
        "length": episode.length,
        **drawing(episode),
        "rewards": rounded(episode.returns),
        "familiarity": familiarity(trained, episode),
    }


def drawing(episode: Episode) -> dict[str, Any]:
    """The board and the marks of every moment, each as its number in a palette and its place; a line has two."""
    palette: dict[tuple[str, str, str, float], int] = {}
    frames = []
    for scene in episode.scenes:
        kinds = [(mark.shape, "#" + bytes(mark.color).hex(), mark.label, rounded(mark.size)) for mark in scene.marks]
        numbers = [palette.setdefault(kind, len(palette)) for kind in kinds]
        places = [(mark.row, mark.column, *(mark.end or ())) for mark in scene.marks]
        frames.append([[number, *map(rounded, place)] for number, place in zip(numbers, places, strict=True)])
    return {"rows": scene.rows, "columns": scene.columns, "palette": [list(kind) for kind in palette], "frames": frames}


def familiarity(trained: Trained, episode: Episode) -> list[list[float]]:
    """By moment, how familiar the situation is to every opened head; empty if the method cannot tell."""
    if not isinstance(trained.method, Recognizes):
        return []
    scores = np.asarray(_familiarity(trained.method, trained.state, episode.situations))
    return rounded(scores[np.isfinite(scores).all(-1), : episode.length + 1].T)


@dataclass(frozen=True)
class Sample:
    """Some of a task's data, and when it was."""

    batch: Batch
    number: np.ndarray
    """By row and time, of the moment in its episode."""
    length: np.ndarray
    """Of that episode."""


def skill_plane(sitter: Sitter, samples: Sequence[Sample], advance: Callable[[], object]) -> dict[str, Any] | None:
    """Skills of the tasks learned by then after every task, in the plane in which those of the last stage differ most."""
    trained = sitter.trained
    if jax.eval_shape(partial(_infer, trained.method), trained.state, jnp.int32(0), samples[0].batch)[1].shape[-1] == 0:
        return None
    picked = [pick_points(sample, task) for task, sample in enumerate(samples)]
    clouds, heads = [], []
    for learned, end in enumerate(sitter.ends, start=1):
        state = checkpoint.load(end.path, trained.state)
        inferred = [_infer(trained.method, state, jnp.int32(task), samples[task].batch) for task in range(learned)]
        clouds.append(np.concatenate([np.asarray(skills)[points.place] for (_, skills), points in zip(inferred, picked, strict=False)]))
        heads.append([int(head) for head, _ in inferred])
        advance()
    plane = Plane.fit(clouds[-1])
    counts = [len(points.time) for points in picked]
    # The skills' own scale, not ours, says how fine a difference can be seen in the plane.
    extent = max(np.abs(plane.project(cloud)).max() for cloud in clouds)
    digits = DIGITS - min(0, math.floor(math.log10(max(extent, SMALLEST_EXTENT))))
    stages = [
        {
            "after": trained.stream.tasks[last].name,
            "points": rounded(plane.project(cloud), digits),
            "task": np.repeat(np.arange(last + 1), counts[: last + 1]).tolist(),
            "head": np.repeat(playing, counts[: last + 1]).tolist(),
            "time": rounded(np.concatenate([points.time for points in picked[: last + 1]])),
        }
        for last, (cloud, playing) in enumerate(zip(clouds, heads, strict=True))
    ]
    return {"explained": rounded(plane.explained), "stages": stages}


@dataclass(frozen=True)
class Points:
    """Some recorded histories of a task."""

    place: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Row, moment and agent in the sample."""
    time: np.ndarray
    """How much of the episode had passed, from 0 to 1."""


def pick_points(sample: Sample, task: int) -> Points:
    """A choice of histories at whose end an agent acted; always the same one, so that stages can be compared."""
    rows, moments, agents = np.nonzero(np.asarray(acting(sample.batch)))
    chosen = np.sort(np.random.default_rng(task).permutation(len(rows))[:POINTS])
    place = rows[chosen], moments[chosen], agents[chosen]
    return Points(place, sample.number[place[:2]] / sample.length[place[:2]])


@dataclass(frozen=True)
class Plane:
    """The two directions in which a cloud of points is widest."""

    center: np.ndarray
    directions: np.ndarray
    """As columns; the second is zero if points have one coordinate only."""
    explained: np.ndarray
    """Share of the cloud's variance along each."""

    @classmethod
    def fit(cls, cloud: np.ndarray) -> "Plane":
        """Principal components, the largest entry of each made positive, because their sign is anybody's choice."""
        center = cloud.mean(0)
        _, widths, found = np.linalg.svd(cloud - center, full_matrices=False)
        count = min(2, len(found))
        largest = np.take_along_axis(found, np.abs(found).argmax(1)[:, None], 1)
        directions, explained = np.zeros((cloud.shape[1], 2)), np.zeros(2)
        directions[:, :count] = (found * np.sign(largest))[:count].T
        explained[:count] = np.square(widths[:count]) / max(np.square(widths).sum(), np.finfo(float).tiny)
        return cls(center, directions, explained)

    def project(self, cloud: np.ndarray) -> np.ndarray:
        """Where points lie in the plane."""
        return (cloud - self.center) @ self.directions


def reuse(sitter: Sitter, samples: Sequence[Sample], advance: Callable[[], object]) -> list[dict[str, Any]]:
    """By task and tenth of its recorded episodes, what every opened head had to say there, in the end."""
    tasks = []
    for lesson, sample in zip(sitter.lessons, samples, strict=True):
        weights, opened = (np.asarray(part) for part in _weigh(sitter.trained.method, sitter.trained.state, sample.batch.state))
        tasks.append({"task": lesson.task.name, "weights": rounded(by_tenth(weights[opened], sample))})
        advance()
    return tasks


def by_tenth(values: np.ndarray, sample: Sample) -> np.ndarray:
    """Means ``[tenth, head]`` over episodes of values ``[head, row, time]``.

    A state of an episode of n states lasts for the n-th part of it, so that the tenths of short episodes are not empty.
    """
    begin, end = ((sample.number + late) / (sample.length + 1) * TENTHS for late in (0, 1))
    tenth = np.arange(TENTHS)[:, None, None]
    shares = np.clip(np.minimum(end, tenth + 1) - np.maximum(begin, tenth), 0.0, None) * np.asarray(sample.batch.present)
    return np.einsum("krt,hrt->kh", shares, values) / shares.sum((1, 2))[:, None]


def rounded(values: Any, digits: int = DIGITS) -> Any:
    """Plain numbers with a few decimals, in lists as deep as the array; minus zero is zero."""
    return (np.round(np.asarray(values, float), digits) + 0.0).tolist()


@partial(jax.jit, static_argnames="method")
def _familiarity(method: Recognizes, state: Any, situations: StateTokens) -> Float[Array, "head *batch"]:
    return method.familiarity(state, situations)


@partial(jax.jit, static_argnames="method")
def _infer(method: Any, state: Any, task: Int[Array, ""], sample: Batch) -> tuple[Int[Array, ""], Float[Array, "row time agent size"]]:
    """The head that plays a task, and the skills it infers from the task's data."""
    head = method.route(state, task, sample)
    return head, method.inferred_skills(state, sample, head)


@partial(jax.jit, static_argnames="method")
def _weigh(method: Any, state: Any, situations: StateTokens) -> tuple[Float[Array, "head row time"], Bool[Array, " head"]]:
    """What heads have to say in situations, and which of them were ever opened."""
    opened = jnp.isfinite(method.familiarity(state, situations)).all((1, 2))
    return method.reuse_weights(state, situations), opened
