"""What one gradient update costs: milliseconds, share of the core's matrix peak, seconds to compile; beside an eager PyTorch version."""

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from comad import envs, methods, streams
from comad.bench import battles
from comad.continual.method import Method
from comad.datasets import library
from comad.datasets.batches import Resident, gather
from comad.datasets.packing import Packing, Pieces
from comad.errors import UserError
from comad.evaluation import assess
from comad.methods.comad import Comad
from comad.training.lessons import Lesson, prepare
from comad.training.loop import CHUNK, LONG_BATCH, create, learn, window_of
from comad.types import Batch, Spec

BATCH = 32
WORLDS = {"lbf": "lbf-bottom", "cn-2": "cn-2", "cn-4": "cn-4", "cn-5": "cn-5"}
"""Shapes by the world whose recorded expert data they are measured on; every other world that has some is a shape too."""
SHAPES = (*WORLDS, *battles.SHAPES)
PEER = "cn-4"
"""The shape on which the eager version is measured too."""
MATRIX = 1024
AGENT_MOMENTS = 75_000
"""So many are learned from in one call of the compiled program."""


@dataclass(frozen=True)
class Shape:
    """A packed batch to learn from."""

    name: str
    spec: Spec
    resident: Resident
    packing: Packing | Pieces
    lesson: Lesson | None

    @property
    def agent_moments(self) -> int:
        """Moments of agents per update, padding included."""
        return self.packing.rows * self.packing.row_length * self.spec.num_agents


@dataclass(frozen=True)
class Row:
    """One measurement."""

    method: str
    shape: str
    recorded: bool
    """On recorded data, or on made-up tokens."""
    cores: int
    stage: int
    """1: the first half of the first task; 2: the second half of the second, for COMAD with old skills as guides."""
    agent_moments: int
    milliseconds: float
    gigaflop: float
    """Of matrix products in one update."""
    gigaflop_per_second: float
    peak: float
    """The same for one large matrix product, measured right after."""
    share_of_peak: float
    compile_seconds: float
    """Tracing and compiling, nothing cached."""
    cached_seconds: float
    """The same with the compiled program in the cache on disk."""
    eager_milliseconds: float | None
    """One update of the padded eager PyTorch version, where measured."""


def measure(
    names: Sequence[str], cores: int, seconds: float, data: Path | None = None, learners: Sequence[str] = ("comad",)
) -> Iterator[Row]:
    """Measure shape by shape and method by method on so many cores of this process."""
    check_names(names, learners, data)
    for name in names:
        for learner in learners:
            method = methods.find(learner)
            yield from _measure_shape(learner, method, find_shape(name, data, method), cores, seconds)


def check_names(names: Sequence[str], learners: Sequence[str], data: Path | None = None) -> None:
    """Refuses shapes and methods that do not exist."""
    for learner in learners:
        methods.find(learner)
    for name in names:
        check_shape(name, data)


def check_shape(name: str, data: Path | None = None) -> bool:
    """Whether there is recorded data of a shape; if not, it must be one that can be made up."""
    recorded = (library.place(WORLDS.get(name, name), "expert", data) / "manifest.json").exists()
    if not recorded and name not in battles.SHAPES and name not in WORLDS:
        known = f"known: {', '.join(SHAPES)}, and worlds with expert data"
        raise UserError(f"there is no shape named {name!r} and no expert data of such a world in {library.root(data)}; {known}")
    return recorded


def find_shape(name: str, data: Path | None = None, method: Method[Any] | None = None) -> Shape:
    """A shape by name, with its data: recorded, or, of two battles that have none, made up. Long episodes are cut as a method needs."""
    if not check_shape(name, data) and name in battles.SHAPES:
        spec, resident, packing = battles.make_up(name, BATCH)
        return Shape(name, spec, resident, packing, None)
    stream = streams.custom([WORLDS.get(name, name)])
    window = window_of(method or Comad(), stream, tuple(envs.find(task.env).spec for task in stream.tasks))
    lesson = prepare(stream, "expert", BATCH if window is None else LONG_BATCH, data, window)[0]
    return Shape(name, lesson.shape, lesson.upload(), lesson.packing, lesson)


def measure_evaluation(data: Path | None = None) -> dict[str, float]:
    """Seconds to play 32 episodes of every task of CN, after compiling, by a team that knows nothing and so plays to the end."""
    stream, method = streams.find("cn"), Comad()
    lessons = prepare(stream, "expert", BATCH, data)
    state = create(method, stream, lessons, 2, jax.random.key(0))
    samples = [lesson.sample() for lesson in lessons]
    state = jax.jit(method.begin)(state, jnp.int32(0), samples[0], jax.random.key(1))

    def play(evaluation: int) -> None:
        assess(method, state, [lesson.env for lesson in lessons], samples, stream.metric, 0, evaluation, 32)

    first = _seconds(partial(play, 0))
    again = min(_seconds(partial(play, number)) for number in (1, 2, 3))
    return {"first_seconds": first, "both_modes_seconds": again, "one_mode_seconds": again / 2}


def pin(cores: int) -> None:
    """Keep this process on its first cores; call it before JAX starts its threads."""
    there = sorted(os.sched_getaffinity(0))
    if not 1 <= cores <= len(there):
        raise UserError(f"--cores {cores} is not possible here: this process may use {len(there)}")
    os.sched_setaffinity(0, set(there[:cores]))


def peak_gigaflops(seconds: float = 0.3) -> float:
    """The best rate of one large matrix product here and now."""
    matrix = jnp.ones((MATRIX, MATRIX))
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()
    return 2 * MATRIX**3 / 1e9 / (_best(lambda: product(matrix, matrix).block_until_ready(), seconds) / 1e3)


def matrix_flop(function: Callable[..., Any], *arguments: Any, busiest: bool) -> float:
    """Operations in the matrix products of a function; where it branches, on the busiest or the idlest way."""

    def of(jaxpr: Any) -> float:
        total = 0.0
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                (contracting, _), _ = equation.params["dimension_numbers"]
                shape = equation.invars[0].aval.shape
                total += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracting)
            inner = [of(getattr(value, "jaxpr", value)) for value in _jaxprs(equation.params)]
            if inner:
                once = (max if busiest else min)(inner) if equation.primitive.name == "cond" else sum(inner)
                total += once * equation.params.get("length", 1)
        return total

    return of(jax.make_jaxpr(function)(*arguments).jaxpr)


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                yield item


def _measure_shape(name: str, method: Any, shape: Shape, cores: int, seconds: float) -> Iterator[Row]:
    stream = streams.custom(["first", "second"])
    init = jax.jit(method.init, static_argnums=(1, 2, 3))
    # One call of the program makes half of a task's updates: many of small batches, a few of large ones.
    count = max(2, min(CHUNK, AGENT_MOMENTS // shape.agent_moments))
    state = init(jax.random.key(0), stream, (shape.spec,) * 2, 2 * count)
    sample = _sample(shape)
    begin = jax.jit(method.begin)
    state = begin(state, jnp.int32(0), sample, jax.random.key(1))
    indices = jax.tree.map(lambda *parts: np.stack(parts), *[shape.packing.index(0, 0, update) for update in range(count)])
    compiled, compile_seconds, cached_seconds = _compile(method, shape, state, indices)
    eager = _eager(shape, cores, seconds) if name == "comad" else None
    for stage in (1, 2):
        afresh = partial(begin, task=jnp.int32(stage - 1), sample=sample, key=jax.random.key(1))
        state = afresh(state)
        milliseconds, state = _time(compiled, state, shape, indices, seconds, afresh if stage == 1 else lambda state: state)
        peak = peak_gigaflops()
        gigaflop = matrix_flop(method.update, state, sample, jax.random.key(0), busiest=stage == 2) / 1e9
        rate = gigaflop / milliseconds * 1e3
        yield Row(
            method=name,
            shape=shape.name,
            recorded=shape.lesson is not None,
            cores=cores,
            stage=stage,
            agent_moments=shape.agent_moments,
            milliseconds=milliseconds,
            gigaflop=gigaflop,
            gigaflop_per_second=rate,
            peak=peak,
            share_of_peak=rate / peak,
            compile_seconds=compile_seconds,
            cached_seconds=cached_seconds,
            eager_milliseconds=eager if stage == 1 else None,
        )


def _compile(method: Any, shape: Shape, state: Any, indices: Any) -> tuple[Any, float, float]:
    """The program of some updates, and the seconds it took to make without and with a cache."""

    def make() -> Any:
        one = jnp.int32(0)
        return learn.lower(method, shape.spec, state, shape.resident, indices, one, one, jax.random.key(0)).compile()

    with _own_cache():
        cold = _seconds(make)
        jax.clear_caches()
        began = time.perf_counter()
        compiled = make()
        return compiled, cold, time.perf_counter() - began


def _time(compiled: Any, state: Any, shape: Shape, indices: Any, seconds: float, again: Callable[[Any], Any]) -> tuple[float, Any]:
    """Milliseconds per update: the best of several chunks, after one to warm up; before each, the state is made ready again."""
    key, best, spent = jax.random.key(0), math.inf, 0.0
    chunks, count = 0, len(indices.moment)
    while spent < seconds or chunks < 3:
        state = jax.block_until_ready(again(state))
        began = time.perf_counter()
        state, made, _ = compiled(state, shape.resident, indices, jnp.int32(0), jnp.int32(count), key)
        assert int(made) == count, "numbers stopped being finite"
        took = time.perf_counter() - began
        best, spent, chunks = (min(best, took) if chunks else best), spent + took, chunks + 1
    return best / count * 1e3, state


def _sample(shape: Shape) -> Batch:
    return jax.jit(gather, static_argnums=0)(shape.spec, shape.resident, shape.packing.index(1, 0, 0))


def _eager(shape: Shape, cores: int, seconds: float) -> float | None:
    # Only here, because importing it loads PyTorch, which takes seconds.
    from comad.bench import eager_step

    if shape.name != PEER or shape.lesson is None or not eager_step.available():
        return None
    step = eager_step.prepare(shape.lesson.dataset.spec, shape.lesson.dataset, BATCH, 0)
    return eager_step.measure(step, seconds, cores)


def _best(function: Callable[[], Any], seconds: float) -> float:
    """Milliseconds of the quickest of many calls."""
    took: list[float] = []
    while sum(took) < seconds or len(took) < 3:
        took.append(_seconds(function))
    return min(took) * 1e3


def _seconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


@contextmanager
def _own_cache() -> Iterator[None]:
    """A cache of compiled programs that is empty at first."""
    before = jax.config.values["jax_compilation_cache_dir"]
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        compilation_cache.reset_cache()
        try:
            yield
        finally:
            jax.config.update("jax_compilation_cache_dir", before)
            compilation_cache.reset_cache()
