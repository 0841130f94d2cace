"""What a task brings to training: its world, its recorded data, how that is packed into batches, and a sample to recognize it by."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from comad import envs, streams
from comad.datasets import library
from comad.datasets.batches import gather, upload
from comad.datasets.packing import SAMPLE_SEED, Index, Packing, Pieces
from comad.datasets.repeats import Repeats
from comad.datasets.store import Dataset, check_world, open_dataset, refuse_damaged
from comad.envs.base import Env, HostEnv
from comad.errors import UserError
from comad.types import Batch, Spec, Stream, Task

SAMPLE_BATCHES = 8
"""So many batches make the sample of a task by which heads are chosen."""
MAKERS = {"expert": "collect {} --quality expert", "medium": "collect {} --quality medium", "mixed": "data mix {}"}
"""How the data of a stream is made, by quality."""


@dataclass(frozen=True)
class Lesson:
    """One task, ready to be learned."""

    number: int
    """Its place in the stream."""
    task: Task
    env: Env[Any] | HostEnv[Any]
    dataset: Dataset
    packing: Packing | Pieces
    repeats: Repeats | None = None
    """Which moments look the same, if many do."""

    @property
    def shape(self) -> Spec:
        """Of its batches."""
        return self.dataset.spec.shape

    def upload(self) -> dict[str, Array]:
        """The recorded data on the device."""
        return dict(upload(self.dataset))

    def indices(self, seed: int, first: int, count: int, room: int) -> Index:
        """Where the batches of some updates stand in the data, in an array with room for a fixed number of them."""
        each = [self.packing.index(seed, self.number, first + offset) for offset in range(count)]
        each = self.repeats.mark(each) if self.repeats else each
        return jax.tree.map(lambda *parts: np.stack(parts + parts[-1:] * (room - count)), *each)

    def remembered(self, episodes: int, seed: int) -> "Lesson":
        """The same with only some of its episodes, drawn once and for all, in batches of the same shape.

        Fewer are a part of more: a memory that shrinks forgets episodes, and never finds one again.
        """
        random = np.random.default_rng([seed, self.number])
        chosen = np.sort(random.permutation(len(self.packing.starts))[:episodes])
        return replace(self, packing=self.packing.only(chosen))

    def sample(self) -> Batch:
        """Some of the data, by which training goes."""
        return next(self.samples(1))

    def samples(self, count: int) -> Iterator[Batch]:
        """Several draws as large; the first is what training goes by."""
        resident = self.upload()
        for number in range(count):
            yield _gather(self.shape, resident, self._sampled(number))

    def clock(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the sample, by row and time: a moment's number in its episode, and that episode's length; padding has no meaning."""
        moments = np.asarray(self._sampled(0).moment)
        episodes = self.dataset.episode_of(moments)
        return moments - np.asarray(self.dataset.starts)[episodes], np.asarray(self.dataset.lengths)[episodes]

    def _sampled(self, number: int) -> Index:
        first = number * SAMPLE_BATCHES
        parts = [self.packing.index(SAMPLE_SEED, self.number, first + batch) for batch in range(SAMPLE_BATCHES)]
        return jax.tree.map(lambda *rows: np.concatenate(rows), *parts)


_gather = jax.jit(gather, static_argnums=0)


def prepare(stream: Stream, quality: str, batch: int, folder: Path | None = None, window: int | None = None) -> tuple[Lesson, ...]:
    """Find and check the data of every task; what is missing is named together with the command that makes it.

    Args:
        stream: the tasks.
        quality: which recordings.
        batch: episodes per batch on average, or steps, if these are cut into pieces.
        folder: where datasets lie.
        window: steps per piece (see `loop.window_of`); by default episodes stay whole.
    """
    worlds = [envs.make(task.env) for task in stream.tasks]
    places = locate(stream, quality, folder)
    datasets = {place: _open(place, env) for place, env in zip(places, worlds, strict=True)}
    packings = {place: _pack(dataset, batch, window) for place, dataset in datasets.items()}
    repeats = {place: _repeats(datasets[place], packing) for place, packing in packings.items()}
    lesson = partial(map, Lesson, range(len(places)), stream.tasks, worlds)
    return tuple(lesson(*([of[place] for place in places] for of in (datasets, packings, repeats))))


def locate(stream: Stream, quality: str, folder: Path | None = None) -> list[Path]:
    """Where the data of every task lies; what is missing is named together with the command that makes it."""
    places = [library.place(envs.find(task.env).spec.env, quality, folder) for task in stream.tasks]
    if missing := [place for place in places if not library.is_there(place)]:
        raise UserError(f"there is no dataset {missing[0]}; {_how_to_make(stream, quality, folder)}")
    return places


def _pack(dataset: Dataset, batch: int, window: int | None) -> Packing | Pieces:
    if window is None:
        return Packing.plan(dataset.starts, dataset.lengths, batch)
    return Pieces(tuple(dataset.starts.tolist()), tuple(dataset.lengths.tolist()), batch, window)


def _repeats(dataset: Dataset, packing: Packing | Pieces) -> Repeats | None:
    return Repeats.find(dataset, packing) if isinstance(packing, Packing) else None


def _open(place: Path, env: Env[Any] | HostEnv[Any]) -> Dataset:
    dataset = open_dataset(place)
    check_world(dataset, env.spec)
    return refuse_damaged(dataset)


def _how_to_make(stream: Stream, quality: str, folder: Path | None) -> str:
    if quality not in MAKERS:
        return f"there are {', '.join(MAKERS)}, and what 'comad data import' took over under other names"
    known = stream.name in streams.STREAMS
    what = stream.name if known else "--tasks " + " ".join(dict.fromkeys(task.env for task in stream.tasks))
    where = f" --data {folder}" if folder else ""
    return f"'comad {MAKERS[quality].format(what)}{where}' makes it"
