"""How cost grows with tasks: an update and an evaluation of COMAD on streams of 1 to 64 tasks whose libraries are full.

Times are of the processor, not of the clock on the wall: what else the machine does hardly changes how they grow.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from comad import streams
from comad.bench.step import BATCH, matrix_flop
from comad.datasets.batches import gather
from comad.evaluation import assess
from comad.methods.comad import Comad, ComadState
from comad.training.lessons import Lesson, prepare
from comad.training.loop import create, learn
from comad.types import Stream

WORLDS = ("cn-2", "cn-3", "cn-4", "cn-5")
SIZES = (1, 2, 4, 8, 16, 32, 64)
UPDATES = 4
"""In one call of the compiled program."""


@dataclass(frozen=True)
class Row:
    """What a stream of so many tasks costs, once all of them have a head."""

    tasks: int
    guides: int
    """Heads that stage 2 hears; 0 hears all."""
    stage_one: float
    stage_two: float
    """Milliseconds of an update."""
    gigaflop_one: float
    gigaflop_two: float
    """Of matrix products in an update."""
    choosing: float
    """Milliseconds to choose the head for one task."""
    evaluation: float
    """Seconds to play all tasks once, both ways; not a number if it was not measured."""
    megabytes: float
    """Of a checkpoint."""


def order(num_tasks: int, worlds: Sequence[str] = WORLDS) -> list[str]:
    """The worlds again and again, each time in another order, so that no task is always followed by the same one."""

    def repeated() -> Iterator[str]:
        for turn in range(num_tasks):
            yield from np.random.default_rng(turn).permutation(list(worlds)).tolist()

    return list(islice(repeated(), num_tasks))


def measure(
    sizes: Sequence[int] = SIZES,
    guides: Sequence[int] = (0,),
    worlds: Sequence[str] = WORLDS,
    seconds: float = 2.0,
    episodes: int = 8,
    data: Path | None = None,
) -> Iterator[Row]:
    """Measure stream by stream; updates on the first world's data, evaluations (if there are episodes) on all."""
    timed = prepare(streams.custom(worlds[:1]), "expert", BATCH, data)[0]
    for size in sizes:
        stream = streams.custom(order(size, worlds))
        lessons = prepare(stream, "expert", BATCH, data)
        for most in guides:
            if most < size:
                yield measure_stream(Comad(guides=most), stream, lessons, timed, seconds, episodes if most == guides[0] else 0)


def measure_stream(method: Comad, stream: Stream, lessons: Sequence[Lesson], timed: Lesson, seconds: float, episodes: int) -> Row:
    """One row; updates are those of one world, whatever the stream begins with."""
    state = full(create(method, stream, lessons, 2 * UPDATES, jax.random.key(0)))
    batch = jax.jit(gather, static_argnums=0)(timed.shape, timed.upload(), timed.packing.index(0, 0, 0))
    little, much = (matrix_flop(method.update, state, batch, jax.random.key(0), busiest=busiest) / 1e9 for busiest in (False, True))
    megabytes = sum(leaf.nbytes for leaf in jax.tree.leaves(state) if hasattr(leaf, "nbytes")) / 1e6
    choose, sample = jax.jit(method.route), timed.sample()
    choosing = 1e3 * best(lambda: jax.block_until_ready(choose(state, jnp.int32(0), sample)), seconds / 4)
    first, second = (update_milliseconds(method, timed, state, stage, seconds) for stage in (1, 2))
    took = evaluation_seconds(method, stream, lessons, state, episodes) if episodes else math.nan
    return Row(len(lessons), method.guides, first, second, little, much, choosing, took, megabytes)


def full(state: ComadState) -> ComadState:
    """A library in which every task has opened a head, and the last one learns."""
    heads = jnp.arange(len(state.library.head_of_task), dtype=jnp.int32)
    return eqx.tree_at(
        lambda state: (state.library.used, state.library.active, state.library.head_of_task, state.task),
        state,
        (jnp.int32(len(heads)), heads[-1], heads, jnp.int32(1)),
    )


def update_milliseconds(method: Comad, lesson: Lesson, state: ComadState, stage: int, seconds: float) -> float:
    """The best of several calls; stage 2 begins when half of a task's updates are made."""
    resident, indices = lesson.upload(), lesson.indices(0, 0, UPDATES, UPDATES)
    ready = eqx.tree_at(lambda state: state.update, state, jnp.int32(0 if stage == 1 else UPDATES))

    def once() -> float:
        copy = jax.block_until_ready(jax.tree.map(jnp.copy, ready))  # the program uses up what it is given
        return processor_seconds(
            lambda: jax.block_until_ready(
                learn(method, lesson.shape, copy, resident, indices, jnp.int32(0), jnp.int32(UPDATES), jax.random.key(0))
            )
        )

    once()
    took: list[float] = []
    while sum(took) < seconds or len(took) < 3:
        took.append(once())
    return 1e3 * min(took) / UPDATES


def evaluation_seconds(method: Comad, stream: Stream, lessons: Sequence[Lesson], state: Any, episodes: int) -> float:
    """The second evaluation, after one that compiles."""
    worlds, samples = [lesson.env for lesson in lessons], [lesson.sample() for lesson in lessons]
    play = partial(assess, method, state, worlds, samples, stream.metric, 0, num_episodes=episodes)
    play(evaluation=0)
    return processor_seconds(lambda: play(evaluation=1))


def processor_seconds(function: Callable[[], Any]) -> float:
    """Processor time of a call, over all threads."""
    began = time.process_time()
    function()
    return time.process_time() - began


def best(function: Callable[[], Any], seconds: float) -> float:
    """Seconds of the quickest of several calls, after one to warm up."""
    function()
    took: list[float] = []
    while sum(took) < seconds or len(took) < 5:
        took.append(processor_seconds(function))
    return min(took)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Cost against the number of tasks, which is on a logarithmic axis; so are seconds, where what is linear is a line of slope one."""
    from matplotlib.figure import Figure  # takes a second to load

    figure = Figure(figsize=(8.4, 3.2))
    left, right = figure.subplots(1, 2)
    kinds = sorted({row.guides for row in rows})
    for guides, style in zip(kinds, cycle(("-o", "--s", ":^")), strict=False):
        here = [row for row in rows if row.guides == guides]
        heard = "all heads" if guides == 0 else f"{guides} heads"
        left.plot([row.tasks for row in here], [row.stage_two for row in here], style, label=f"stage 2, hears {heard}")
        if guides == kinds[0]:
            left.plot([row.tasks for row in here], [row.stage_one for row in here], "-x", label="stage 1")
            played = [row for row in here if not math.isnan(row.evaluation)]
            right.plot([row.tasks for row in played], [row.evaluation for row in played], style, label="all tasks played, both ways")
            right.plot([row.tasks for row in here], [row.choosing * row.tasks / 1e3 for row in here], "-x", label="of it choosing heads")
    for axes, title in ((left, "milliseconds per update"), (right, "seconds per evaluation")):
        axes.set(xscale="log", xlabel="tasks, and heads opened", title=title)
        axes.set_xticks(sorted({row.tasks for row in rows}), labels=[str(size) for size in sorted({row.tasks for row in rows})])
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize=8)
    left.set_ylim(bottom=0)
    right.set_yscale("log")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
