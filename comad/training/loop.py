"""Task after task: begin, update and evaluate in turn, finish. Knows no method by name.

Whatever happens at an update is a function of the seed, the task and the number of the update, so a run that was stopped anywhere goes on
from its last checkpoint as if nothing had been.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from comad import checkpoint
from comad.continual.method import Logs, Method
from comad.continual.schedules import BLOCK, DataBlock
from comad.datasets.batches import Resident, gather
from comad.datasets.packing import Index
from comad.errors import UserError
from comad.evaluation import TAKEN, assess
from comad.ranges import AtOnce, Count, Updates, ranged
from comad.runs.run import Run
from comad.training.cost import Ledger
from comad.training.lessons import Lesson
from comad.types import PRNGKey, Spec, Stream

PRNGKeys = Key[Array, "3"]
CHUNK = 50
"""Updates in one call of the compiled program: after each, progress is shown and a wish to stop is heard."""
FEW = 4
"""And in a call of methods that change between the data of several tasks."""
MOST_SCHEDULED = 127
"""Tasks that such methods can learn: each has a block of numbers for its updates, and so many blocks fit into 32 bits."""
LONG_EVALUATIONS, LONG_BATCH = 5, 128
"""Evaluations per task and steps per update where actions are vectors: one evaluation of 32 episodes is 32,000 steps of a simulator."""
WINDOW = 20
"""Steps over which agents of such worlds remember while they learn, if they remember."""


@dataclass(frozen=True)
@ranged
class Budget:
    """How long to train, and how often to look."""

    updates: Updates
    """Gradient updates per task."""
    evaluations: Count = 20
    """Evaluations per task, besides the one before its first update."""
    episodes: AtOnce = 32
    """Episodes per task and evaluation."""
    batch: AtOnce = 32
    """Episodes per update, on average; steps, where episodes are cut into pieces (`window_of`)."""

    def __post_init__(self) -> None:
        if not 1 <= self.evaluations <= self.updates:
            raise UserError(
                f"{self.evaluations} evaluations do not fit into {self.updates} updates; give fewer evaluations or more updates"
            )

    @classmethod
    def of(cls, spec: Spec, updates: int, evaluations: int | None, episodes: int, batch: int | None) -> "Budget":
        """With what suits a world where nothing is given: long episodes are played less often, and learned from by steps."""
        few, steps = (LONG_EVALUATIONS, LONG_BATCH) if spec.continuous else (cls.evaluations, cls.batch)
        return cls(updates, few if evaluations is None else evaluations, episodes, steps if batch is None else batch)

    @property
    def points(self) -> tuple[int, ...]:
        """After how many updates of a task evaluations take place."""
        return tuple(round(self.updates * number / self.evaluations) for number in range(self.evaluations + 1))

    def following(self, update: int) -> int:
        """The next of these points."""
        return next(point for point in self.points if point > update)


@dataclass(frozen=True)
class Heads:
    """A task has begun or ended, with this library of heads."""

    task: int
    when: Literal["begin", "finish"]
    heads: dict[str, Any]


@dataclass(frozen=True)
class Learned:
    """So many updates have been made, over all tasks."""

    task: int
    updates: int
    logs: dict[str, float]


@dataclass(frozen=True)
class Evaluated:
    """All tasks were played."""

    task: int
    point: int
    scores: dict[str, Any]


@dataclass(frozen=True)
class Stopped:
    """The run was asked to stop, and has saved all it knows."""

    task: int
    update: int


Event = Heads | Learned | Evaluated | Stopped


def train(
    method: Method[Any],
    stream: Stream,
    lessons: Sequence[Lesson],
    seed: int,
    budget: Budget,
    run: Run,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Train from wherever the run is to the end of the stream, telling what happens.

    Args:
        method: who learns.
        stream: what, in which order.
        lessons: the tasks of the stream with their data.
        seed: decides everything that chance has a part in.
        budget: how long.
        run: where it is written down.
        stop: asked every few seconds; if it says yes, the run is saved and ends early.
    """
    found = run.resume()
    begin, finish = (jax.jit(verb, donate_argnums=0) for verb in (method.begin, method.finish))
    state = create(method, stream, lessons, budget.updates, creation_key(seed, len(lessons)))
    samples = [lesson.sample() for lesson in lessons]
    task, update = _place(found.position, budget) if found else (0, None)
    if found:
        state = checkpoint.load(found.path, state)

    take = partial(_take, lessons=lessons, residents={}, remembered={}, run=run)
    ledger = Ledger(run.cost() if found else None)

    def look(lesson: Lesson, update: int) -> Evaluated:
        point = budget.points.index(update)
        evaluation = lesson.number * len(budget.points) + point
        with ledger.timing("evaluation", 1):
            scores = assess(method, state, [lesson.env for lesson in lessons], samples, stream.metric, seed, evaluation, budget.episodes)
        run.append("scores", {"task": lesson.number, "point": point, "update": update, **scores})
        _save(run, lesson, update, budget, state, ledger)
        return Evaluated(lesson.number, point, scores)

    for lesson in lessons[task:]:
        number, sample = jnp.int32(lesson.number), samples[lesson.number]
        begin_key, update_key, finish_key = task_keys(seed, lesson.number)
        if update is None:
            state, update = begin(state, number, sample, begin_key), 0
            yield _note_heads(run, method, state, lesson, "begin")
            yield look(lesson, update)
        while update < budget.updates:
            count = min(CHUNK, budget.following(update) - update)
            with ledger.timing("learning", count):
                blocks = method.data.blocks(seed, lesson.number, len(lessons), update, count)
                state, logs = take(method, state, blocks, seed, update_key)
            update += count
            run.append("logs", {"task": lesson.number, "update": update, **logs})
            yield Learned(lesson.number, lesson.number * budget.updates + update, logs)
            if update == budget.updates:
                state = finish(state, number, sample, finish_key)
                yield _note_heads(run, method, state, lesson, "finish")
            wished = stop()  # asked once, for between two questions the answer may change
            if update in budget.points:
                yield look(lesson, update)
            elif wished:
                _save(run, lesson, update, budget, state, ledger)
            if wished and (lesson is not lessons[-1] or update < budget.updates):
                yield Stopped(lesson.number, update)
                return
        update = None


def creation_key(seed: int, num_tasks: int) -> PRNGKey:
    """By which a run's state is made: the one after those of its tasks."""
    return jax.random.fold_in(jax.random.key(seed), num_tasks)


def task_keys(seed: int, task: int) -> PRNGKeys:
    """By which a task is begun, learned (each update takes the one of its number below it) and finished.

    JAX's ``split`` gives what ``fold_in`` gives for 0, 1 and 2: nobody else may use these below a task's key (`evaluation_key`).
    """
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), task), TAKEN)


def create(method: Method[Any], stream: Stream, lessons: Sequence[Lesson], updates: int, key: PRNGKey) -> Any:
    """The state with which a run begins."""
    return jax.jit(_init(method, stream, lessons, updates))(key)


def check_fit(method: Method[Any], stream: Stream, lessons: Sequence[Lesson], updates: int) -> None:
    """Let the method refuse a stream that it cannot learn, before anything is written."""
    if method.data.mixes_tasks and len(lessons) > MOST_SCHEDULED:
        raise UserError(
            f"methods that look at other tasks' data learn at most {MOST_SCHEDULED} tasks, and {stream.name!r} has {len(lessons)}"
        )
    jax.eval_shape(_init(method, stream, lessons, updates), jax.random.key(0))


def window_of(method: Method[Any], stream: Stream, specs: tuple[Spec, ...]) -> int | None:
    """Steps that a method must see in a row: one if its agents remember nothing; none are cut where episodes are short."""
    if not specs[0].continuous:
        return None
    state = jax.eval_shape(partial(method.init, stream=stream, specs=specs, updates=stream.updates), jax.random.key(0))
    memory = jax.eval_shape(lambda state: method.start(state, specs[0].num_agents), state)
    return WINDOW if any(leaf.size for leaf in jax.tree.leaves(memory)) else 1


def _init(method: Method[Any], stream: Stream, lessons: Sequence[Lesson], updates: int) -> Callable[[PRNGKey], Any]:
    return partial(method.init, stream=stream, specs=tuple(lesson.env.spec for lesson in lessons), updates=updates)


@partial(jax.jit, static_argnames=("method", "spec"), donate_argnames="state")
def learn(
    method: Method[Any],
    spec: Spec,
    state: Any,
    resident: Resident,
    indices: Index,
    first: Int[Array, ""],
    count: Int[Array, ""],
    key: PRNGKey,
) -> tuple[Any, Int[Array, ""], Logs]:
    """Make updates ``first`` up to ``first + count``, or fewer if numbers stop being finite; tells how many, and the sums of their logs.

    The number of updates is not part of the compiled program, so a shorter last chunk is the same program.
    """

    @jax.jit  # so that it is traced once, though it is asked for the names of its logs before it is used
    def one(number: Int[Array, ""], state: Any) -> tuple[Any, Logs]:
        batch = gather(spec, resident, jax.tree.map(lambda leaf: leaf[number], indices))
        return method.update(state, batch, jax.random.fold_in(key, first + number))

    def proceed(carry: tuple[Int[Array, ""], Any, Logs]) -> Bool[Array, ""]:
        number, _, sums = carry
        return (number < count) & jnp.isfinite(jnp.stack(list(sums.values()))).all()

    def advance(carry: tuple[Int[Array, ""], Any, Logs]) -> tuple[Int[Array, ""], Any, Logs]:
        number, state, sums = carry
        state, logs = one(number, state)
        return number + 1, state, jax.tree.map(jnp.add, sums, logs)

    indices = jax.tree.map(jnp.asarray, indices)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, jnp.int32(0), state)[1])
    made, state, sums = jax.lax.while_loop(proceed, advance, (jnp.int32(0), state, nothing))
    return state, made, sums


def _take(
    method: Method[Any],
    state: Any,
    blocks: Sequence[DataBlock],
    seed: int,
    key: PRNGKey,
    lessons: Sequence[Lesson],
    residents: dict[int, Resident],
    remembered: dict[tuple[int, int], Lesson],
    run: Run,
) -> tuple[Any, dict[str, float]]:
    """Make the updates of some blocks; the state after them, and the means of what was logged."""
    # Two sizes only, because each is a program of its own.
    room = FEW if method.data.mixes_tasks and max(block.count for block in blocks) <= FEW else CHUNK
    totals: dict[str, float] = {}
    for block in blocks:
        lesson = lessons[block.source]
        if block.kept is not None:
            if (block.source, block.kept) not in remembered:
                remembered[block.source, block.kept] = lesson.remembered(block.kept, seed)
            lesson = remembered[block.source, block.kept]
        if block.source not in residents:
            if not method.data.mixes_tasks:
                residents.clear()  # earlier tasks' data will not be needed again
            residents[block.source] = lesson.upload()
        indices = lesson.indices(seed, block.first, block.count, room)
        state, made, sums = learn(
            method, lesson.shape, state, residents[block.source], indices, jnp.int32(block.first), jnp.int32(block.count), key
        )
        for name, value in sums.items():
            if not math.isfinite(float(value)):
                raise _diverged(lesson, name, (block.first + int(made) - 1) % BLOCK, indices, int(made) - 1, run)
            totals[name] = totals.get(name, 0.0) + float(value)
    return state, {name: total / sum(block.count for block in blocks) for name, total in totals.items()}


def _place(position: int, budget: Budget) -> tuple[int, int | None]:
    """The task to go on with, and how many of its updates are made; none if it has not begun."""
    task, update = divmod(position, budget.updates + 1)
    return (task + 1, None) if update == budget.updates else (task, update)


def _save(run: Run, lesson: Lesson, update: int, budget: Budget, state: Any, ledger: Ledger) -> None:
    position = lesson.number * (budget.updates + 1) + update
    run.save(position, partial(checkpoint.write, tree=state), milestone=update == budget.updates)
    run.note_cost(ledger.total())


def _note_heads(run: Run, method: Method[Any], state: Any, lesson: Lesson, when: Literal["begin", "finish"]) -> Heads:
    heads = {name: np.asarray(value).tolist() for name, value in method.describe(state).items()}
    run.append("heads", {"task": lesson.number, "name": lesson.task.name, "when": when, **heads})
    return Heads(lesson.number, when, heads)


def _diverged(lesson: Lesson, name: str, update: int, indices: Index, place: int, run: Run) -> UserError:
    index = jax.tree.map(lambda leaf: leaf[place], indices)
    episodes = np.unique(lesson.dataset.episode_of(index.moment[index.present]))
    return UserError(
        f"{name} stopped being finite at update {update} of {lesson.task.name}, whose batch holds episodes "
        f"{', '.join(map(str, episodes))} of {lesson.dataset.path}; {run.folder} keeps the last good checkpoint"
    )
