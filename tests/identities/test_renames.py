"""A rename is harmless where the class states what was written before."""

import dataclasses
import json
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from identities import KINDS, begun, leaves, training_states
from jax.tree_util import keystr, tree_leaves_with_path
from twins import renamed, twin, twin_of

from comad import checkpoint, envs
from comad.cli.commands import changed, read_method
from comad.envs import navigation
from comad.errors import UserError
from comad.experts.library import SHIPPED, TRAINERS, Card, cards, read_card, trainer_of
from comad.experts.training import Progress
from comad.files import write_json
from comad.methods import METHODS
from comad.methods.comad_plus import ComadPlus
from comad.runs.journal import Mark
from comad.settings import from_settings, identifying, settings
from comad.training.loop import Budget
from comad.types import Task

TEAMS = ("cn-2", "cn-5", "3m", "ant-reward-0")
"""One of each form: plain, with relations, with targets to aim at, with one mind."""
WRITTEN_ALONE: list[Any] = [
    *METHODS.values(),
    *(kind() for kind in TRAINERS.values()),
    *(Budget(100), Task("CN-2", "cn-2"), Mark(7, "ab"), Progress(8, 0.5, 1.0, 0.5, 9.0, 2.0, "cd")),
    ComadPlus(recurrent=True, temperature=4.0),
]


def attributes(tree: Any) -> set[str]:
    """Returns the names that the program has for arrays."""
    return {keystr(path, simple=True, separator=".") for path, _ in tree_leaves_with_path(tree)}


@pytest.mark.parametrize("env", TEAMS)
def test_shipped_weights_load_into_a_team_whose_every_attribute_is_renamed(env: str) -> None:
    path = SHIPPED / env / "expert-related.safetensors"
    blank = trainer_of(read_card(path.with_suffix(".json"))).blank(envs.find(env).spec)
    other = twin(blank)
    assert not attributes(other) & attributes(blank)
    loaded = [jax.tree.leaves(checkpoint.load(path, like)) for like in (other, blank)]
    assert all(np.array_equal(one, same) for one, same in zip(*loaded, strict=True))


def test_a_renamed_team_is_saved_in_the_same_bytes(tmp_path: Path) -> None:
    path = SHIPPED / "cn-2" / "expert.safetensors"
    blank = trainer_of(read_card(path.with_suffix(".json"))).blank(envs.find("cn-2").spec)
    checkpoint.save(tmp_path / "weights", checkpoint.load(path, twin(blank)))
    assert (tmp_path / "weights").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", METHODS)
def test_states_of_renamed_methods_have_the_same_names(name: str) -> None:
    for env in KINDS.values():
        state = begun(name, env.spec)
        other = twin(state)
        assert not attributes(other) & attributes(state)
        assert leaves(other) == leaves(state)


def test_states_of_renamed_trainings_have_the_same_names() -> None:
    for states in training_states().values():
        assert leaves(twin(states)) == leaves(states)


@pytest.mark.parametrize("thing", WRITTEN_ALONE, ids=lambda thing: type(thing).__name__)
def test_renamed_settings_are_written_and_read_as_before(thing: Any) -> None:
    other = twin(thing)
    assert json.dumps(settings(other)) == json.dumps(settings(thing))
    assert json.dumps(identifying(other)) == json.dumps(identifying(thing))
    assert from_settings(other, settings(thing)) == other
    assert from_settings(thing, settings(other)) == thing
    ((name, value), *rest) = settings(thing).items()
    with pytest.raises(TypeError, match=f"has no '{renamed(name)}'"):
        from_settings(other, {renamed(name): value, **dict(rest)})


def test_a_renamed_card_is_written_and_read_as_before(tmp_path: Path) -> None:
    for card in cards():
        path = SHIPPED / card.env / f"{card.quality}.json"
        kind: Any = twin_of(Card)
        other = from_settings(kind, json.loads(path.read_text()))
        write_json(tmp_path / "card.json", settings(other))
        assert (tmp_path / "card.json").read_bytes() == path.read_bytes()
        assert from_settings(Card, settings(other)) == card


def test_a_rename_in_the_source_of_an_environment_leaves_its_rules() -> None:
    source = Path(str(navigation.__file__)).read_text()
    names = [field.name for field in dataclasses.fields(navigation.Navigation)]
    for name in names:
        # Attributes and arguments of the class alone: neither text nor other classes.
        source = re.sub(rf"\bself\.{name}\b", f"self.{renamed(name)}", source)
        source = re.sub(rf"\benv\.{name}\b", f"env.{renamed(name)}", source)
        source = re.sub(rf"^    {name}: int", f"    {renamed(name)}: int", source, flags=re.M)
        source = re.sub(rf"\b{name}=given", f"{renamed(name)}=given", source)
    module = types.ModuleType("renamed_navigation")
    module.__dict__["__name__"] = navigation.__name__
    exec(compile(source, "renamed_navigation", "exec"), module.__dict__)
    for name in ("cn-2", "cn-4-9x9", "cn-4-9x9-60t-1r-3s"):
        ours, theirs = envs.find(name), module.make(name)
        assert [field.name for field in dataclasses.fields(theirs)] == [*map(renamed, names)]
        assert theirs.spec == ours.spec and theirs.spec.rules_hash == ours.spec.rules_hash


TASK = Task("a", "b")


@dataclass(frozen=True)
class Old:
    pace: int = 1
    inner: Task = TASK


@dataclass(frozen=True)
class New:
    WRITTEN: ClassVar[Mapping[str, str]] = {"speed": "pace"}

    speed: int = 1
    inner: Task = TASK


@dataclass(frozen=True)
class Newer(New):
    WRITTEN: ClassVar[Mapping[str, str]] = {"task": "duty"}

    task: int = 2


def test_what_a_class_leaves_out_has_its_own_name_and_subclasses_keep_what_is_stated() -> None:
    assert settings(New(3)) == settings(Old(3)) == {"pace": 3, "inner": {"name": "a", "env": "b"}}
    assert settings(Newer()) == {"pace": 1, "inner": {"name": "a", "env": "b"}, "duty": 2}
    assert from_settings(New, {"pace": 3}) == New(3)
    with pytest.raises(TypeError, match="New has no 'speed'"):
        from_settings(New, {"speed": 3})
    with pytest.raises(TypeError, match="pace of New cannot be 'fast'"):
        from_settings(New, {"pace": "fast"})


@dataclass(frozen=True)
class Strange:
    WRITTEN: ClassVar[Mapping[str, str]] = {"sped": "pace"}

    speed: int = 1


@dataclass(frozen=True)
class Twice:
    WRITTEN: ClassVar[Mapping[str, str]] = {"speed": "pace"}

    speed: int = 1
    pace: int = 2


class StrangeLayer(eqx.Module):
    WRITTEN: ClassVar[Mapping[str, str]] = {"wait": "weight"}

    weight: jax.Array


class TwiceLayer(eqx.Module):
    WRITTEN: ClassVar[Mapping[str, str]] = {"scale": "weight"}

    scale: jax.Array
    weight: jax.Array


def test_names_of_no_field_and_names_that_two_fields_share_are_refused() -> None:
    for kind, why in ((Strange, "'sped', which is no field"), (Twice, "two fields by one name")):
        with pytest.raises(TypeError, match=why):
            settings(kind())
        with pytest.raises(TypeError, match=why):
            from_settings(kind, {"pace": 1})
    weight = jnp.zeros(2)
    for layer, why in (
        (StrangeLayer(weight), "'wait', which is no field"),
        (TwiceLayer(weight, weight), "two fields by one name"),
    ):
        with pytest.raises(TypeError, match=why):
            checkpoint.named_leaves({"layers": [layer]})


@jax.tree_util.register_pytree_node_class
class Keyless:
    """A node whose children have numbers instead of names."""

    def __init__(self, *children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, ...]) -> "Keyless":
        return cls(*children)


class Layer(eqx.Module):
    WRITTEN: ClassVar[Mapping[str, str]] = {"matrix": "weight"}

    matrix: jax.Array
    shift: jax.Array | None = None


def test_written_names_are_found_inside_any_kind_of_node() -> None:
    weight = jnp.zeros(2)
    partial = jax.tree_util.Partial(len, Layer(weight))
    keyless = Keyless(None, (Layer(weight),))
    tree = {"a": [None, Layer(weight, weight)], "b": keyless, "c": partial, "": weight}
    names = leaves(tree)
    plain = [keystr(path, simple=True, separator=".") for path, _ in tree_leaves_with_path(tree)]
    assert names == [name.replace("matrix", "weight") for name in plain] and len(set(names)) == 5
    assert leaves(weight) == [""]


def test_options_of_a_renamed_method_make_the_settings_that_a_run_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = ComadPlus(temperature=4.0, hand_over=True, recurrent=False)
    monkeypatch.setitem(METHODS, "comad-plus", twin(ComadPlus()))
    for wanted in (settings(method), dict(dataclasses.asdict(twin(method)))):
        words = changed("comad-plus", wanted)
        assert f"--{renamed('temperature').replace('_', '-')}" in words
        assert read_method("comad-plus", words) == twin(method)
    with pytest.raises(UserError, match="comad-plus has no setting 'warmth'"):
        changed("comad-plus", {"warmth": 1.0})
