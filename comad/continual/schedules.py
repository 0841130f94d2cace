"""Which data each update learns from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from comad.ranges import CountOrZero, Updates, ranged

BLOCK = 1 << 24
"""More updates than any task has.

Batches are numbered from a multiple of it, so that no two blocks of a stream see the same ones.
"""
LONGEST = 4
"""Updates in a row on one task that are made in one call."""


@dataclass(frozen=True)
class DataBlock:
    """Updates in a row on the data of one task."""

    source: int
    """The task whose data is used."""
    first: int
    """The number of the first of these batches in the order of that task's data."""
    count: int
    kept: int | None = None
    """Use only so many of its episodes, those that were kept when it ended; all by default."""


@runtime_checkable
class DataSchedule(Protocol):
    """Decides which data each update learns from."""

    @property
    def mixes_tasks(self) -> bool:
        """Whether updates learn from other tasks than the current one."""
        ...

    @property
    def boundaries(self) -> bool:
        """Whether tasks begin and end, as far as the learner is concerned."""
        ...

    def blocks(
        self,
        seed: int,
        task: int,
        num_tasks: int,
        update: int,
        count: int,
    ) -> Sequence[DataBlock]:
        """Returns the data of updates ``update`` up to ``update + count`` of a task, in order.

        Plain Python, a function of its arguments alone, so that a run can go on from anywhere.
        """
        ...


@dataclass(frozen=True)
class OwnTask:
    """Learns each task from its own data."""

    mixes_tasks: ClassVar[bool] = False
    boundaries: ClassVar[bool] = True

    def blocks(
        self,
        seed: int,
        task: int,
        num_tasks: int,
        update: int,
        count: int,
    ) -> Sequence[DataBlock]:
        """Returns one block of the task's own data."""
        return [DataBlock(task, update, count)]


@dataclass(frozen=True)
class AllTasks:
    """Learns all tasks at once: every update from a task drawn at random."""

    mixes_tasks: ClassVar[bool] = True
    boundaries: ClassVar[bool] = False

    def blocks(
        self,
        seed: int,
        task: int,
        num_tasks: int,
        update: int,
        count: int,
    ) -> Sequence[DataBlock]:
        """Returns a task drawn anew for every update; neighbors of one task are made together."""
        found: list[DataBlock] = []
        for number in range(update, update + count):
            source = int(np.random.default_rng([seed, task, number]).integers(num_tasks))
            if found and found[-1].source == source and found[-1].count < LONGEST:
                found[-1] = DataBlock(source, found[-1].first, found[-1].count + 1)
            else:
                found.append(DataBlock(source, task * BLOCK + number, 1))
        return found


@dataclass(frozen=True)
@ranged
class Rehearse:
    """Learns each task from its own data, and now and then from kept episodes of old tasks."""

    memory: CountOrZero = 128
    """Episodes kept in all, in equal shares of all old tasks."""
    every: Updates = 2
    """Make one more update on an old task, drawn at random, after so many."""

    mixes_tasks: ClassVar[bool] = True
    boundaries: ClassVar[bool] = True

    def blocks(
        self,
        seed: int,
        task: int,
        num_tasks: int,
        update: int,
        count: int,
    ) -> Sequence[DataBlock]:
        """Returns the task's own data, and after every few updates kept episodes of an old one."""
        share = self.memory // max(task, 1)
        if task == 0 or share == 0:
            return [DataBlock(task, update, count)]
        found: list[DataBlock] = []
        for number in range(update, update + count):
            if found and found[-1].kept is None and found[-1].count < self.every:
                found[-1] = DataBlock(task, found[-1].first, found[-1].count + 1)
            else:
                found.append(DataBlock(task, number, 1))
            if number % self.every == self.every - 1:
                old = int(np.random.default_rng([seed, task, number]).integers(task))
                found.append(DataBlock(old, BLOCK * task + number, 1, kept=share))
        return found


@dataclass(frozen=True)
class InTurn:
    """Learns the first tasks of a stream in turn, one update on each; then each by itself."""

    first: int | None = None
    """How many tasks are learned together; by default all."""

    mixes_tasks: ClassVar[bool] = True

    @property
    def boundaries(self) -> bool:
        """Whether tasks begin and end: not where all are learned together."""
        return self.first is not None

    def blocks(
        self,
        seed: int,
        task: int,
        num_tasks: int,
        update: int,
        count: int,
    ) -> Sequence[DataBlock]:
        """Returns one update on each of the first tasks in turn, or the task's own data."""
        if self.first is not None and task >= self.first:
            return [DataBlock(task, update, count)]
        sources = num_tasks if self.first is None else self.first
        numbers = range(update, update + count)
        return [DataBlock(number % sources, task * BLOCK + number, 1) for number in numbers]
