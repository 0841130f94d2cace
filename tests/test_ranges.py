"""Every number that can be set has a range: checked wherever it comes from, shown in the help."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jaxtyping
import pytest
from finished import Skilled, make_run, record_all
from numeric_options import classes, ends, make, mentions_number, options, outside
from reliability import PROJECT, tried

from comad import methods
from comad.cli import main, parse
from comad.cli.grid import RunGrid
from comad.cli.train import Training
from comad.errors import MALFORMED, OutOfRangeError, UserError
from comad.experts.library import TRAINERS
from comad.grid.cells import read_grid
from comad.methods import METHODS
from comad.methods.comad import Comad
from comad.policy import restore
from comad.ranges import (
    LARGEST_SEED,
    Numeric,
    Range,
    Seed,
    Share,
    check,
    numeric,
    numeric_fields,
    ranged,
)
from comad.runs.folder import read_settings, write_settings
from comad.runs.seal import seal_run
from comad.settings import from_settings, identifying, names_of, settings
from comad.training.loop import Budget
from comad.types import Stream, Task

pytestmark = pytest.mark.promise("option-ranges")
OPTIONS = options()
FROM_FILES: dict[str, Any] = {**METHODS, **TRAINERS, "budget": Budget}
WRONG_IN_TURN = ("nan", "inf", "-inf", "20 digits", "text", "empty")
"""On the command line each option meets one of these; in programs, grids and files, all."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    # As in a program: strict mode would refuse text for a number before the range does.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def is_whole(kind: Any, name: str) -> bool:
    return numeric_fields(kind)[name].kind is int


def wrong_values(kind: Any, name: str) -> dict[str, Any]:
    stated = numeric_fields(kind)[name].range
    assert stated is not None
    return outside(stated, is_whole(kind, name))


def as_field(kind: Any, name: str, value: Any) -> Any:
    return (value,) if numeric_fields(kind)[name].several else value


def test_a_range_holds_its_ends_or_not_and_never_what_is_not_finite() -> None:
    closed, opened = Range(least=0, most=1), Range(above=0, below=1)
    assert 0 in closed and 1 in closed and 0.5 in opened and 0 not in opened and 1 not in opened
    assert math.nextafter(0, 1) in opened and math.nextafter(1, 0) in opened
    assert math.nextafter(1, 2) not in closed and math.nextafter(0, -1) not in closed
    for value in (math.nan, math.inf, -math.inf, 10**400):
        assert value not in closed and value not in opened
    assert (str(closed), str(opened)) == ("0 <= x <= 1", "0 < x < 1")
    for wrong in ({}, {"least": 0}, {"least": 0, "above": 0, "most": 1}, {"most": 1}):
        with pytest.raises(TypeError, match="one lower end"):
            Range(**wrong)


def test_annotations_of_numbers_are_understood_and_others_left_alone() -> None:
    seeds = numeric(Annotated[tuple[Seed, ...] | None, "anything"])
    assert seeds is not None and seeds.kind is int and seeds.optional and seeds.several
    assert seeds.range == Range(least=0, most=LARGEST_SEED)
    assert numeric(float | None) == Numeric(float, None, optional=True)
    others: list[Any] = [bool, bool | None, str, tuple[str, ...], Path | None, int | str]
    assert [numeric(other) for other in others] == [None] * len(others)


def test_a_number_without_a_range_is_refused_when_its_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"Loose\.rate is a number without a range"):

        @ranged
        class Loose:
            rate: float = 0.5


def test_the_check_of_a_class_itself_comes_after_that_of_its_ranges() -> None:
    @dataclass(frozen=True)
    @ranged
    class Pair:
        low: Share = 0.0
        high: Share = 1.0

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise UserError("low is above high")

    with pytest.raises(UserError, match="low is above high"):
        Pair(0.5, 0.25)
    with pytest.raises(UserError, match=r"^low must be a number x with 0 <= x <= 1, not nan$"):
        Pair(math.nan, 0.25)


def test_a_value_is_repeated_in_short() -> None:
    values: list[tuple[Any, str]] = [
        ("x" * 500, "'" + "x" * 39 + "..."),
        (10**400, "one of 1329 bits"),
        (True, "True"),
        (None, "None"),
    ]
    for value, shown in values:
        with pytest.raises(OutOfRangeError, match=f"not {re.escape(shown)}$"):
            Comad(guides=value)


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_number_states_its_range_and_no_instance_is_outside(kind: Any) -> None:
    numbers = {field.name for field in dataclasses.fields(kind) if mentions_number(field.type)}
    assert numeric_fields(kind).keys() == numbers, "a number in a form that nothing checks"
    for name, entry in numeric_fields(kind).items():
        assert entry.range is not None, f"{kind.__name__}.{name} has no range"
        stated = re.escape(str(entry.range))
        cross = {"evaluations": 1} if (kind, name) == (Budget, "updates") else {}
        for value in ends(entry.range, is_whole(kind, name)):
            wanted = as_field(kind, name, value)
            assert getattr(make(kind, **{**cross, name: wanted}), name) == wanted
        wrong = {
            **wrong_values(kind, name),
            "flag": True,
            "fraction": 0.5 if is_whole(kind, name) else 1j,
        }
        for value in wrong.values():
            with pytest.raises(UserError, match=rf"^{name} must be .* x with {stated}, not "):
                make(kind, **{name: as_field(kind, name, value)})
        tried(len(wrong))


def test_the_walk_finds_every_verb_with_numbers_and_every_method() -> None:
    found = {(option.words, option.flag) for option in OPTIONS}
    assert {words[1] for words, _ in found if words[0] == "train"} == METHODS.keys()
    assert {words for words, _ in found if words[0] != "train"} == {
        *((verb,) for verb in ("collect", "demo", "evaluate", "heads", "play", "watch")),
        *(("bench", verb) for verb in ("envs", "grid", "step", "tasks")),
        *(("data", "mix"), ("experts", "compare"), ("experts", "train")),
    }
    assert {(("train", "ewc"), flag) for flag in ("--learning-rate", "--strength")} <= found
    assert {(("train", "rehearsal"), flag) for flag in ("--learning-rate", "--memory")} <= found
    assert len(found) == len(OPTIONS) >= 185


@pytest.mark.parametrize("words", sorted({option.words for option in OPTIONS}), ids="-".join)
def test_the_command_line_refuses_what_is_outside_in_one_line_and_leaves_nothing(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = [option for option in OPTIONS if option.words == words]
    for number, option in enumerate(mine):
        wrong = wrong_values(option.kind, option.name)
        for what in (("below", "above")[number % 2], WRONG_IN_TURN[number % len(WRONG_IN_TURN)]):
            value = str(wrong[what])
            assert main(option.given(value)) == 2, option.given(value)
            out, err = capsys.readouterr()
            assert out == "" and err.count("\n") == 1, err
            assert err.startswith(f"comad: {option.flag} must be ")
            assert f"x with {option.range}, not " in err
            assert list(Path().iterdir()) == []
        tried(2)


@pytest.mark.parametrize("words", sorted({option.words for option in OPTIONS}), ids="-".join)
def test_the_command_line_takes_both_ends_and_shows_the_range(
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = [option for option in OPTIONS if option.words == words]
    for end in (0, 1):
        wanted = {option: ends(option.range, option.whole)[end] for option in mine}
        parsed = parse(
            [
                *mine[0].given(),
                *(word for option, value in wanted.items() for word in (option.flag, repr(value))),
            ]
        )
        found = {type(one): one for one in parts(parsed)}
        for option, value in wanted.items():
            field = as_field(option.kind, option.name, value)
            assert getattr(found[option.kind], option.name) == field
    assert main([*words, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for option in mine:
        pieces = re.split(r" (?=--[a-z])", shown)
        explained = [text for text in pieces if text.startswith(f"{option.flag} ")]
        assert f"; {option.range})" in " ".join(explained), option.flag


def parts(thing: Any) -> list[Any]:
    """Returns a dataclass and those inside it."""
    inside = [getattr(thing, field.name) for field in dataclasses.fields(thing)]
    return [
        thing,
        *(part for one in inside if dataclasses.is_dataclass(one) for part in parts(one)),
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_grid_refuses_a_variant_that_is_outside_before_any_run_begins(method: str) -> None:
    of_method = [option for option in OPTIONS if option.words == ("train", method)]
    for option in (option for option in of_method if option.kind is not Training):
        for value in wrong_values(option.kind, option.name).values():
            text = json.dumps(value) if isinstance(value, str) else repr(value)
            variant = f"name = 'own'\nmethod = '{method}'\noptions = {{ {option.name} = {text} }}\n"
            Path("own.toml").write_text(f"streams = ['cn']\n[[variants]]\n{variant}")
            sentence = rf"^own.toml: {method}-own: {option.flag} must be .* x with "
            with pytest.raises(UserError, match=sentence):
                RunGrid(file=Path("own.toml")).grid()
            tried()
    assert [path.name for path in Path().iterdir()] == ["own.toml"]


@pytest.mark.parametrize("name", ["updates", "evaluations", "episodes", "batch", "seeds"])
def test_a_grid_refuses_a_budget_that_is_outside(name: str) -> None:
    values = ["-9", "99999999999999999999", "nan", "inf", "0.5", "true", "''"]
    for value in values if name == "seeds" else ["0", *values]:
        text = f"[{value}]" if name == "seeds" else value
        Path("own.toml").write_text(f"streams = ['cn']\n{name} = {text}\n")
        with pytest.raises(UserError, match=f"^own.toml: {name} must be "):
            read_grid(Path("own.toml"))
        tried()


def spoiled(thing: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields names of numbers in a dataclass or inside it, and settings in which they are wrong."""
    kind: Any = type(thing)
    sound = settings(thing)
    for name, written in names_of(thing).items():
        inside = getattr(thing, name)
        if dataclasses.is_dataclass(inside):
            yield from ((deeper, {**sound, written: other}) for deeper, other in spoiled(inside))
        if name in numeric_fields(kind):
            wrong = wrong_values(kind, name).values()
            yield from ((name, {**sound, written: value}) for value in wrong)


@pytest.mark.parametrize("name", FROM_FILES)
def test_settings_from_a_file_are_refused_outside_their_ranges(name: str) -> None:
    like = FROM_FILES[name]
    sound = make(like)
    assert from_settings(like, settings(sound)) == sound
    numbers = set()
    for number, other in spoiled(sound):
        with pytest.raises(OutOfRangeError, match=f"^{number} must be "):
            from_settings(like, other)
        numbers.add(number)
        tried()
    assert {"ewc": "strength", "rehearsal": "memory", "owl": "heads"}.get(name, number) in numbers


def test_a_run_with_foreign_settings_is_named_with_the_setting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS, "skilled", Skilled())
    data = record_all(tmp_path / "data")
    run = tmp_path / "run"
    make_run(run, data, "skilled", Skilled())
    sound = read_settings(run)
    long = {**sound["identity"]["budget"], "updates": 1e20}
    foreign: list[tuple[str, dict[str, Any]]] = [
        ("discount must be .*, not 1e[+]300", {"method": "comad", "settings": {"discount": 1e300}}),
        ("updates must be .*, not 1e[+]20", {"budget": long}),
        ("threshold must be .*, not 1e[+]300", {"threshold": 1e300}),
    ]
    for why, other in foreign:
        write_settings(run, {**sound, "identity": {**sound["identity"], **other}})
        seal_run(run)
        with pytest.raises(UserError, match=f"{re.escape(str(run))}.*{why}"):
            restore(run)
        tried()


def test_errors_of_ranges_are_those_that_readers_of_files_expect() -> None:
    assert issubclass(OutOfRangeError, UserError) and OutOfRangeError in MALFORMED


def test_every_committed_run_is_inside_and_means_what_it_did() -> None:
    found = sorted((PROJECT / "results").glob("*/*/settings.json"))
    identities = [json.loads(path.read_text())["identity"] for path in found]
    # Trainings of experts keep settings, too.
    runs = [identity for identity in identities if "tasks" in identity]
    for identity in runs:
        method = from_settings(methods.find(identity["method"]), identity["settings"])
        assert identifying(method).items() >= identity["settings"].items()
        budget = from_settings(Budget, identity["budget"])
        assert settings(budget) == identity["budget"]
        tasks = tuple(from_settings(Task, task) for task in identity["tasks"])
        Stream(identity["stream"], tasks, budget.updates, identity["threshold"], identity["metric"])
        check(Seed, "seed", identity["seed"])
    assert len(runs) >= 200
