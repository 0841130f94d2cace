"""How surely a library of heads tells tasks that it knows from new ones, tried on recordings that it never saw."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from comad import checkpoint
from comad.continual.method import Recognizes
from comad.errors import UserError
from comad.policy import restore
from comad.portrait import find_ends
from comad.runs.record import RunRecord
from comad.training.lessons import Lesson, prepare
from comad.training.loop import window_of
from comad.types import Batch


@dataclass(frozen=True)
class Encounter:
    """Samples of one task's recordings, met by the library as it was after another task."""

    after: str
    """The task that was learned last."""
    task: str
    head: int | None
    """The one that learned this task; none if it is new."""
    reused: tuple[int, ...]
    """By head, how many samples it would have been used again for."""
    opened: int
    """How many samples would have opened a head."""
    scores: tuple[float, ...]
    """By head, how familiar the samples were to it on average."""

    @property
    def samples(self) -> int:
        """How many were met."""
        return sum(self.reused) + self.opened

    @property
    def right(self) -> int:
        """How many were told rightly: a known task gets its own head, a new one a new head."""
        return self.opened if self.head is None else self.reused[self.head]


def meet(path: Path, data: Path, samples: int) -> Iterator[Encounter]:
    """Let a finished run meet every task of its stream again after each one that it learned, while it can still open heads.

    Args:
        path: folder of the run.
        data: where other recordings of its tasks lie, of the same quality.
        samples: how many of each task, as large as the one by which a task is met in training.
    """
    trained = restore(path)
    if not isinstance(trained.method, Recognizes):
        raise UserError(f"{path} has no heads that recognize anything: its method is {trained.record.settings['identity']['method']}")
    trained.record.score_array()  # says what is missing of a run that is not finished
    identity, stream = trained.record.settings["identity"], trained.stream
    window = window_of(trained.method, stream, tuple(env.spec for env in trained.worlds))
    lessons = prepare(stream, identity["quality"], identity["budget"]["batch"], data, window)
    for lesson in lessons:
        if identity["datasets"].get(lesson.env.spec.env) == lesson.dataset.content:
            how = f"'comad collect {stream.name} --quality {identity['quality']} --seed 1 --data OTHER' records others"
            raise UserError(f"{lesson.dataset.path} holds what {path} was trained on, which proves nothing; {how}")
    met: dict[str, Lesson] = {}
    for lesson in lessons:
        met.setdefault(lesson.task.env, lesson)
    heads: dict[str, int] = {}
    for lesson, end, grown in zip(lessons, find_ends(path, [task.name for task in stream.tasks]), trained.record.growth(), strict=True):
        heads[lesson.task.env] = grown.head
        if grown.used >= len(lessons):
            continue
        state = checkpoint.load(end.path, trained.state)
        following = jnp.int32(min(lesson.number + 1, len(lessons) - 1))
        for env, known in met.items():
            said = [_meet(trained.method, state, following, sample) for sample in known.samples(samples)]
            given = np.bincount([int(head) for head, _ in said], minlength=grown.used + 1)
            scores = np.mean([np.asarray(scores) for _, scores in said], axis=0)[: grown.used]
            reused = tuple(given[: grown.used].tolist())
            yield Encounter(lesson.task.name, known.task.name, heads.get(env), reused, int(given[grown.used]), tuple(scores.tolist()))


def count(record: RunRecord) -> int:
    """How many encounters there will be."""
    grown = record.growth()
    return sum(entry.used < len(grown) for entry in grown) * len({entry.task for entry in grown})


@partial(jax.jit, static_argnames="method")
def _meet(method: Any, state: Any, task: Int[Array, ""], sample: Batch) -> tuple[Int[Array, ""], Float[Array, " head"]]:
    """The head that a task would be given, and how familiar it is to every head."""
    begun = method.describe(method.begin(state, task, sample, jax.random.key(0)))
    return begun["active"], begun["scores"]
