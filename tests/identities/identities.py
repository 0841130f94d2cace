"""Everything that files and hashes depend on by name, as lists of plain values."""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import jax
import numpy as np
from aiming import Aiming
from recorded import FULL_VIEW, SHORT_SIGHT, record

from comad import checkpoint, envs, streams
from comad.bench.envs import Row as EnvRow
from comad.bench.scaling import Row as TasksRow
from comad.bench.step import Row as StepRow
from comad.cli.evaluate import Score
from comad.datasets.layout import EPISODE_COLUMNS, columns
from comad.datasets.statistics import Statistics
from comad.encounters import Encounter
from comad.envs.ant import Ant, AntWorld
from comad.envs.foraging import Foraging
from comad.envs.smax import BattleWorld
from comad.experts import hosted
from comad.experts.base import Trainer
from comad.experts.hosted import HostState
from comad.experts.joint import num_seen
from comad.experts.library import SHIPPED, TRAINERS, Card, cards, trainer_of
from comad.experts.qmix import Qmix
from comad.experts.training import Progress
from comad.files import sha256
from comad.grid.cells import Grid
from comad.methods import METHODS
from comad.metrics import Summary
from comad.runs.journal import Mark
from comad.runs.record import Growth
from comad.settings import written_names
from comad.streams import STREAMS
from comad.training.loop import Budget
from comad.types import Continuous, Discrete, Feature, Spec, Task

CUSTOM = (
    *("cn-12", "cn-4-9x9", "cn-4-9x9-60t-1r-3s", "lbf-8x8-2p-1f", "lbf-9x8-3p-2f-2s-coop-pen"),
    *("3m-60t", "2m1s_vs_3z", "protoss_6v6", "zerg_10v11-150t", "starcraft-3m"),
    *("starcraft-2s3z", "starcraft-5m_vs_6m", "starcraft-terran_5v5", "starcraft-protoss_10v11"),
    *("ant-reward-22.5", "ant-without-2-4", "ant-reward-90-without-2-obsk1-500t"),
)
UNNAMED = (
    Foraging(3, 2, 7, 8, penalty=0.25),
    Foraging(2, 2, 9, 9, limit=30, sight=3, max_player_level=3, max_food_level=4),
    Foraging(2, 2, 8, 8, min_player_level=2, min_food_level=2, food_cells=((1, 1), (5, 5))),
    Aiming(),
)
KINDS: dict[str, Any] = {
    "cn, all seen": FULL_VIEW,
    "cn, part seen": SHORT_SIGHT,
    "battle": envs.find("3m"),
    "ant": envs.find("ant-reward-0"),
}
"""One environment of every kind that networks and datasets tell apart."""
WRITTEN_CLASSES: dict[str, Any] = {
    **{f"method {name}": method for name, method in METHODS.items()},
    **{f"trainer {name}": kind for name, kind in TRAINERS.items()},
    **{"Budget": Budget, "Card": Card, "Progress": Progress, "Task": Task},
    **{"Continuous": Continuous, "Discrete": Discrete, "Feature": Feature, "Spec": Spec},
    **{"Encounter": Encounter, "Grid": Grid, "Growth": Growth, "Mark": Mark, "Score": Score},
    **{"Statistics": Statistics, "Summary": Summary, "battle in a training": BattleWorld},
    **{"bench envs": EnvRow, "bench step": StepRow, "bench tasks": TasksRow},
}
"""Every dataclass whose fields files and printed JSON have by name; methods with what is in them."""


def rules() -> dict[str, Any]:
    """Returns what identifies the environments of all streams, and some others."""
    of_streams = {task.env for stream in STREAMS.values() for task in stream.tasks}
    named: list[Any] = [envs.find(name) for name in sorted({*of_streams, *CUSTOM})]
    specs = [env.spec for env in (*named, *UNNAMED)]
    return {spec.env: {"hash": spec.rules_hash, "rules": spec.rules} for spec in specs}


def settings() -> dict[str, Any]:
    """Returns the names that fields have in files, with the kinds of their values."""
    return {name: dict(fields(kind)) for name, kind in WRITTEN_CLASSES.items()}


def fields(thing: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yields the written name of each field of a dataclass and of those inside it.

    Inside an instance they have the types that they have there.
    """
    kind: Any = thing if isinstance(thing, type) else type(thing)
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    for name, written in written_names(kind).items():
        inner = types[name] if kind is thing else getattr(thing, name)
        if dataclasses.is_dataclass(inner):
            yield from fields(inner, f"{before}{written}.")
        else:
            yield f"{before}{written}", described(types[name])


def described(annotation: Any) -> str:
    """Returns what an annotation says of values, without ranges and names of classes."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return described(inner[0])
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(described, inner)))
    if origin is Literal:
        return " | ".join(map(repr, inner))
    if origin is not None:
        return f"{origin.__name__} of {', '.join(dict.fromkeys(map(described, inner)))}"
    if dataclasses.is_dataclass(annotation):
        return "fields"
    return {type(None): "None", Any: "anything", ...: "more"}.get(annotation) or annotation.__name__


def weights() -> dict[str, Any]:
    """Returns the hash of every shipped file of weights."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(SHIPPED.glob("*/*.safetensors")):
        found.setdefault(path.parent.name, {})[path.stem] = sha256(path)
    return found


def teams() -> dict[str, Any]:
    """Returns every array that teams of a trainer may have, with the forms in which it comes."""
    found: dict[str, dict[str, list[str]]] = {}
    for card in cards():
        blank = trainer_of(card).blank(envs.find(card.env).spec)
        arrays = found.setdefault(card.algorithm, {})
        for name, leaf in checkpoint.named_leaves(blank):
            arrays[name] = sorted({*arrays.get(name, ()), form(leaf)})
    return found


def form(leaf: Any) -> str:
    """Returns kind and shape of an array."""
    return f"{leaf.dtype}{list(leaf.shape)}"


def method_state(name: str) -> dict[str, Any]:
    """Returns the names of all arrays of a method's states, in any kind of environment."""
    return nested(named for env in KINDS.values() for named in leaves(begun(name, env.spec)))


def begun(name: str, spec: Spec) -> Any:
    """Returns the form of a method's state at the start of a stream."""
    stream = streams.custom(["first", "second"], threshold=1e9)
    method = METHODS[name]
    init = partial(method.init, stream=stream, specs=(spec,) * 2, updates=4)
    return jax.eval_shape(init, jax.random.key(0))


def leaves(tree: Any) -> list[str]:
    """Returns the names of all arrays of a tree."""
    return [name for name, _ in checkpoint.named_leaves(tree)]


def nested(names: Iterable[str]) -> dict[str, Any]:
    """Returns the last parts of names by all that goes before."""
    found: dict[str, set[str]] = {}
    for name in names:
        before, _, last = name.rpartition(".")
        found.setdefault(before, set()).add(last)
    return {before: sorted(lasts) for before, lasts in found.items()}


def trainings() -> dict[str, Any]:
    """Returns the names of all arrays of the trainers' states."""
    return {name: nested(leaves(state)) for name, state in training_states().items()}


def training_states() -> dict[str, Any]:
    """Returns states of trainings in any form that they come in, without running anything."""
    remembering = Qmix(relations=True, attentive=True, recurrent=True)
    return {
        "qmix": [
            *(played(trainer, env) for trainer in (Qmix(), remembering) for env in GRIDS),
            remembering.blank(KINDS["battle"].spec),
        ],
        **{name: hosted_state(TRAINERS[name]()) for name in TRAINERS if name != "qmix"},
    }


GRIDS = (FULL_VIEW, SHORT_SIGHT, envs.find("lbf-bottom"))


def played(trainer: Qmix, env: Any) -> Any:
    """Returns the form of a training in JAX."""
    return jax.eval_shape(partial(trainer.init, env), jax.random.key(0))


def hosted_state(trainer: Any) -> HostState:
    """Returns the form of a guided training beside a simulator, which need not be installed."""
    env, lanes = KINDS["ant"], trainer.num_worlds
    assert isinstance(env, Ant) and isinstance(trainer, Trainer)
    world = AntWorld(np.zeros((lanes, 3)), np.zeros((lanes, 2)), np.zeros(lanes, np.int32))

    def begin(key: Any) -> HostState:
        seen = jax.numpy.zeros((lanes, num_seen(env.spec)))
        ended = jax.numpy.zeros(lanes, bool)
        shown = hosted.Shown(seen, ended, ended)
        state = HostState(hosted.think_first(trainer, env.spec, shown, key), None, shown)
        return trainer.begin_from(state, trainer.team(state))

    return dataclasses.replace(jax.eval_shape(begin, jax.random.key(0)), world=world)


def datasets() -> dict[str, Any]:
    """Returns what datasets hold by name, and the hash of what a tiny one says."""
    of_columns = {kind: dict(forms_of_columns(env.spec)) for kind, env in KINDS.items()}
    with TemporaryDirectory() as folder:
        dataset = record(Path(folder) / "random", FULL_VIEW, episodes=4)
        manifest = json.loads((dataset.path / "manifest.json").read_text())
    entry = sorted(next(iter(manifest["arrays"].values())))
    return {
        "columns": of_columns,
        "content": {f"4 random episodes of {dataset.spec.env}": dataset.content},
        "manifest": {"": sorted(manifest), "arrays": entry},
    }


def forms_of_columns(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yields every column of a dataset with what it holds of every moment or episode."""
    for column in (*columns(spec), *EPISODE_COLUMNS):
        yield column.name, f"{column.kind} {column.dtype}{list(column.shape)}"


LISTS: dict[str, Any] = {
    **{"rules": rules, "settings": settings, "weights": weights, "teams": teams},
    **{"trainings": trainings, "datasets": datasets},
    **{f"state-{name}": partial(method_state, name) for name in METHODS},
}
"""What makes each of the lists, by the name of its file."""
