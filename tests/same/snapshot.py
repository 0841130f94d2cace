"""Everything that a method computes on a tiny stream, as hashes that no rename can break. Run as a program: METHOD KIND.

States are multisets of array hashes: axes of size one are squeezed, names are ignored, single numbers are left out. Logs and scores are
multisets of numbers.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # half the time to compile; what is computed is fixed all the same

import jax
import jax.numpy as jnp
import numpy as np
from learners import KEY, STREAM, small_batch, vectors
from recorded import FULL_VIEW, SHORT_SIGHT, record

from comad import envs, streams
from comad.datasets import library
from comad.datasets.batches import gather, upload
from comad.datasets.packing import Packing
from comad.methods import find
from comad.runs.run import open_run
from comad.training.lessons import prepare
from comad.training.loop import Budget, train
from comad.training.provenance import identify
from comad.types import Batch, Spec

KINDS = ("discrete", "recurrent", "continuous")
UPDATES = 4
"""For each of two tasks; the second half of each has guidance."""


def data(kind: str) -> tuple[Spec, Batch]:
    """Returns a spec and a batch of a kind: full view, partial view and so memory, or continuous actions."""
    if kind == "discrete":
        return FULL_VIEW.spec, small_batch()
    if kind == "continuous":
        return vectors()
    with tempfile.TemporaryDirectory() as folder:
        dataset = record(Path(folder) / "random", SHORT_SIGHT)
        index = Packing.plan(dataset.starts, dataset.lengths, 8).index(0, 0, 0)
        return dataset.spec, jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index)


def arrays(tree: Any) -> list[str]:
    """Returns a hash for each array of more than one element, sorted."""
    found = []
    for leaf in jax.tree.leaves(tree):
        leaf = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        array = np.squeeze(np.asarray(leaf))
        if array.size > 1:
            found.append(f"{list(array.shape)} {array.dtype} {hashlib.sha1(np.ascontiguousarray(array).tobytes()).hexdigest()}")
    return sorted(found)


def numbers(value: Any) -> list[str]:
    """Returns all numbers in plain values or arrays, to the last bit, sorted."""
    if isinstance(value, dict):
        return sorted(number for one in value.values() for number in numbers(one))
    if isinstance(value, list):
        return sorted(number for one in value for number in numbers(one))
    return [np.float64(value).hex()] if not isinstance(value, str | None) and np.size(value) == 1 else []


def learn(method: Any, spec: Spec, batch: Batch) -> Iterator[dict[str, Any]]:
    """Yields what there is after each step of two tasks."""
    begin, update, finish, route = (jax.jit(verb) for verb in (method.begin, method.update, method.finish, method.route))
    state = jax.jit(partial(method.init, stream=STREAM, specs=(spec,) * 2, updates=UPDATES))(KEY)
    yield {"at": "initialization", "arrays": arrays(state)}
    for task in range(2):
        state = begin(state, jnp.int32(task), batch, KEY)
        yield {"at": f"task {task}, beginning", "arrays": arrays(state)}
        for number in range(UPDATES):
            state, logs = update(state, batch, jax.random.fold_in(KEY, number))
            yield {"at": f"task {task}, update {number + 1}", "arrays": arrays(state), "numbers": numbers(logs)}
        state = finish(state, jnp.int32(task), batch, KEY)
        yield {"at": f"task {task}, end", "arrays": arrays(state)}
    for task in range(2):
        head = route(state, jnp.int32(task), batch)
        yield {"at": f"actions of task {task}", "arrays": arrays(list(act(method, state, spec, batch, head)))}


def act(method: Any, state: Any, spec: Spec, batch: Batch, head: Any) -> Iterator[Any]:
    """Yields the greedy and the sampled actions of several steps of an episode."""
    rows, times = (np.asarray(index[:12]) for index in np.nonzero(np.asarray(batch.step)))
    step = jax.jit(method.act)
    for greedy in (True, False):
        carry = method.start(state, spec.num_agents)
        for row, time in zip(rows, times, strict=True):
            tokens, available = jax.tree.map(lambda leaf, row=row, time=time: leaf[row, time], (batch.tokens, batch.available))
            actions, carry = step(state, carry, tokens, available, head, jnp.array(greedy), jax.random.fold_in(KEY, int(time)))
            yield jnp.stack([actions, actions + int(time)])


def run(name: str) -> list[str]:
    """Returns all numbers in the scores of a tiny run of two tasks."""
    stream, budget = streams.custom(["cn-2-6x6-9t-2r", "cn-3-6x6-9t-2r"]), Budget(updates=UPDATES, evaluations=2, episodes=2, batch=4)
    method = find(name)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for task in stream.tasks:
            env: Any = envs.make(task.env)
            record(library.place(env.spec.env, "random", folder / "data"), env)
        lessons = prepare(stream, "random", budget.batch, folder / "data")
        with open_run(folder / name, identify(name, method, stream, "random", lessons, 1, budget)) as opened:
            for _ in train(method, stream, lessons, 1, budget, opened):
                pass
        lines = (folder / name / "scores.jsonl").read_text().splitlines()
    return numbers([json.loads(line) for line in lines])


def main(name: str, kind: str) -> None:
    """Prints what a method computes as JSON; ``run`` is a kind too: a whole run through the training loop."""
    whole = kind == "run"
    found = [{"at": "scores", "numbers": run(name)}] if whole else list(learn(find(name), *data(kind)))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
