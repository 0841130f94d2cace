"""Trackers show the journals and nothing else, however often a run is interrupted; without their libraries they are refused."""

import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from habit import Habit
from recorded import record
from test_layout import PACKAGE, imports, sources

from comad import metrics, tracking
from comad.cli import grid, main, parse, train
from comad.datasets import library
from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.grid.local import Waited
from comad.methods import METHODS
from comad.runs.folder import JournalName
from comad.runs.journal import Record
from comad.runs.record import MODES, find_runs, read_run
from comad.runs.run import Run, open_run
from comad.tracking import Name, Tail
from comad.training.loop import Learned

WITH_TENSORBOARD = pytest.mark.skipif(find_spec("tensorboardX") is None, reason="needs tensorboardX: pip install 'comad[track]'")
WITH_WANDB = pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb: pip install 'comad[track]'")
IDENTITY: dict[str, Any] = {
    "method": "comad",
    "settings": {"temperature": 10.0, "expand": True, "limit": None, "sizes": (3, 4)},
    "stream": "cn",
    "quality": "expert",
    "tasks": [{"name": "CN-2"}, {"name": "CN-2"}],  # the same task again
    "seed": 3,
    "budget": {"updates": 4, "evaluations": 2},
}
Numbers = list[tuple[str, int, float]]
"""Tag, step and value, in the order in which they are told."""


def told() -> Iterator[tuple[JournalName, Record]]:
    """The lines of a training, as the loop writes them."""
    chance = np.random.default_rng(0)

    def scores(task: int, update: int) -> tuple[JournalName, Record]:
        played: Record = {mode: {"score": chance.random(2).tolist(), "return": [0.0, 0.0]} for mode in ("sampled", "greedy")}
        return "scores", {"task": task, "point": update // 2, "update": update, "heads": [0, task], **played}

    for task in (0, 1):
        library = {"active": task, "scores": [chance.random(), 0.0]}
        yield "heads", {"task": task, "name": "CN-2", "when": "begin", **library}
        yield scores(task, 0)
        for update in (1, 2, 3, 4):
            yield "logs", {"task": task, "update": update, "q_loss": chance.random(), "kl": chance.random()}
            if update == 4:
                yield "heads", {"task": task, "name": "CN-2", "when": "finish", **library}
            if update % 2 == 0:
                yield scores(task, update)


LINES = list(told())


def sit(folder: Path, *names: Name, until: int = len(LINES)) -> None:
    """Train from the last checkpoint to the end, or to a line after which the run is as good as killed."""
    with open_run(folder, {"identity": IDENTITY}) as run, tracking.following(folder, IDENTITY, names) as follow:
        found = run.resume()
        for number in range(found.position if found else 0, until):
            run.append(*LINES[number])
            follow()
            if LINES[number][0] == "scores":
                run.save(number + 1, lambda path: path.write_bytes(b""))


@pytest.fixture(autouse=True)
def _no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def events(*files: bytes) -> Iterator[Any]:
    """The events in files of TensorBoard's: length, its checksum, the event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for data in files:
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]


def written(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "track/tensorboard").iterdir())]


def shown(*files: bytes) -> Numbers:
    """What TensorBoard shows of files that it reads one after the other: a new session takes back what was told of its steps before."""
    numbers: Numbers = []
    for event in events(*files):
        if event.HasField("session_log"):
            numbers = [number for number in numbers if number[1] < event.step]
        numbers += [(value.tag, event.step, value.simple_value) for value in event.summary.value if value.HasField("simple_value")]
    return numbers


def expected(folder: Path) -> Numbers:
    """The same from the journals, by journal."""
    run = read_run(folder)
    names, updates = run.settings["identity"]["tasks"], run.settings["identity"]["budget"]["updates"]
    numbers: Numbers = []
    for line in run.logs:
        step = line["task"] * updates + line["update"]
        numbers += [(f"logs/{name}", step, line[name]) for name in line.keys() - {"task", "update"}]
    for line in run.heads:
        step = (line["task"] + (line["when"] == "finish")) * updates
        numbers += [(f"heads/{name}", step, line[name]) for name in line.keys() & {"active"}]
    seen = {mode: metrics.performance_over_time(run.score_array(mode)[None], "seen")[0] for mode in MODES}
    for line in run.scores:
        step = line["task"] * updates + line["update"]
        for mode in MODES:
            numbers.append((f"P-seen/{mode}", step, seen[mode][line["task"], line["point"]]))
            numbers += [(f"score-{mode}/{on}-{names[on]['name']}", step, score) for on, score in enumerate(line[mode]["score"])]
        numbers += [(f"head-played/{on}-{names[on]['name']}", step, head) for on, head in enumerate(line["heads"])]
    return numbers


def alike(numbers: Numbers) -> Numbers:
    """In one order, and as exact as TensorBoard keeps them."""
    return sorted((tag, step, float(np.float32(value))) for tag, step, value in numbers)


@pytest.mark.promise("damage")
@pytest.mark.parametrize("damage", [b"\x00\xff", b"[]", b'{"task": "x", "update": 1}', b"{}", b'{"task": 0, "update": 1, "loss": 1e999}'])
def test_a_damaged_line_of_the_log_is_not_shown_and_the_others_are(tmp_path: Path, damage: bytes) -> None:
    sit(tmp_path)
    whole = Tail(tmp_path, IDENTITY).read()
    path = tmp_path / "logs.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([damage, *lines[1:]]) + b"\n")
    left = Tail(tmp_path, IDENTITY).read()
    assert len(left) == len(whole) - 1 and all(point in whole for point in left)


@WITH_TENSORBOARD
def test_tensorboard_shows_the_journals_line_by_line(tmp_path: Path) -> None:
    sit(tmp_path, "tensorboard", "tensorboard")
    numbers = shown(*written(tmp_path))
    assert alike(numbers) == alike(expected(tmp_path))
    # In the order of time, both evaluations between two tasks included.
    assert [step for _, step, _ in numbers] == sorted(step for _, step, _ in numbers)
    last, first = (LINES[number][1]["sampled"]["score"] for number in (8, 10))
    assert [value for tag, step, value in numbers if tag == "score-sampled/0-CN-2" and step == 4] == pytest.approx([last[0], first[0]])
    assert [value for tag, step, value in numbers if tag == "P-seen/sampled" and step == 4] == pytest.approx([last[0], sum(first) / 2])


@WITH_TENSORBOARD
def test_tensorboard_knows_the_settings(tmp_path: Path) -> None:
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    sit(tmp_path, "tensorboard", until=1)
    values = [value for event in events(*written(tmp_path)) for value in event.summary.value]
    start = next(value for value in values if value.tag == "_hparams_/session_start_info").metadata.plugin_data.content
    settings = HParamsPluginData.FromString(start).session_start_info.hparams
    assert settings["settings.temperature"].number_value == 10.0 and settings["settings.expand"].bool_value is True
    assert settings["tasks.1.name"].string_value == "CN-2" and settings["settings.sizes.1"].number_value == 4.0


@WITH_TENSORBOARD
@pytest.mark.parametrize("earlier", [((5, "tensorboard"),), ((8, "tensorboard"), (13, None), (15, "tensorboard")), ((len(LINES), None),)])
def test_an_interrupted_run_is_shown_like_one_that_never_was(tmp_path: Path, earlier: tuple[tuple[int, Name | None], ...]) -> None:
    sit(tmp_path / "whole", "tensorboard")
    read: list[bytes] = []
    for until, name in earlier:  # killed there, tracked or not
        sit(tmp_path / "cut", *([name] if name else []), until=until)
        read += written(tmp_path / "cut") if name else []
    sit(tmp_path / "cut", "tensorboard")
    assert shown(*written(tmp_path / "cut")) == shown(*written(tmp_path / "whole"))
    # And to a TensorBoard that was open all the time.
    assert shown(*read, *written(tmp_path / "cut")) == shown(*written(tmp_path / "whole"))


@WITH_TENSORBOARD
def test_a_fresh_start_forgets_what_was_shown_and_nothing_takes_it_for_a_run(tmp_path: Path) -> None:
    sit(tmp_path / "run", "tensorboard", until=3)
    assert find_runs(tmp_path) == [tmp_path / "run"]
    with open_run(tmp_path / "run", {"identity": IDENTITY}, fresh=True):
        assert not (tmp_path / "run/track").exists()


@WITH_TENSORBOARD
def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "track").write_text("in the way")
    (tmp_path / "settings.json").write_text(json.dumps({"identity": {**IDENTITY, "settings": dict(IDENTITY["settings"], sizes=[3, 4])}}))
    with pytest.raises(UserError, match="track/tensorboard cannot be read or written"):
        sit(tmp_path, "tensorboard")


@WITH_TENSORBOARD
def test_train_shows_every_line_as_soon_as_it_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def lines(method: Any, stream: Any, lessons: Any, seed: int, budget: Any, run: Run, stop: Any) -> Iterator[Learned]:
        run.resume()
        for line in LINES:
            run.append(*line)
            yield Learned(0, 0, {})
            counts.append(sum(1 for _ in events(*written(tmp_path))))

    replaced: dict[str, Any] = {"train": lines, "prepare": lambda *_: (), "identify": lambda *_: {"identity": IDENTITY}}
    for name, function in (replaced | {"check_fit": lambda *_: None, "show_result": lambda _: None}).items():
        monkeypatch.setattr(train, name, function)
    assert main(["train", "ft", "--stream", "cn", "--out", str(tmp_path), "--track", "tensorboard"]) == 0
    # Behind the version, the new session and two events on settings.
    assert counts == [4 + number for number in range(1, len(LINES) + 1)]


@dataclass(frozen=True)
class Headless(Habit):
    """Like most methods."""

    def describe(self, state: Any) -> dict[str, Any]:
        return {}


@WITH_TENSORBOARD
@pytest.mark.slow
def test_a_training_is_the_same_run_with_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "habit", Headless())
    env = Navigation(2, 6, limit=9)
    record(library.place(env.spec.env, "random", tmp_path / "data"), env)

    def training(out: str, *names: Name) -> None:
        size: Any = {"updates": 5, "evaluations": 2, "episodes": 2, "batch": 4}
        train.Training(Headless(), None, (env.spec.env,), "random", **size, data=tmp_path / "data", out=tmp_path / out, track=names).run()

    training("tracked", "tensorboard")
    assert alike(shown(*written(tmp_path / "tracked"))) == alike(expected(tmp_path / "tracked"))
    training("plain")
    assert not (tmp_path / "plain/track").exists()
    first, second = (read_run(tmp_path / name) for name in ("tracked", "plain"))
    assert first.settings["identity"] == second.settings["identity"]
    assert (first.logs, first.scores) == (second.logs, second.scores)
    training("plain", "tensorboard")  # finished long ago, and shown all the same
    assert shown(*written(tmp_path / "plain")) == shown(*written(tmp_path / "tracked"))


def rows(path: Path) -> list[dict[str, float]]:
    """The rows in a file of Weights & Biases': records in pieces that do not cross blocks of 32 kB, after 7 bytes of its own."""
    from wandb.proto.wandb_internal_pb2 import Record as Entry

    data, place, pending, found = path.read_bytes(), 7, b"", []
    while place + 7 <= len(data):
        if place % 32768 > 32768 - 7:
            place += -place % 32768
        _, size, kind = struct.unpack("<IHB", data[place : place + 7])
        pending += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            entry, pending = Entry.FromString(pending), b""
            if entry.HasField("history"):
                found.append({(item.key or item.nested_key[0]): json.loads(item.value_json) for item in entry.history.item})
    return found


@WITH_WANDB
def test_wandb_keeps_one_run_of_all_lines_and_calls_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    connect = socket.socket.connect

    def only_here(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX, f"a connection to {address}"
        connect(self, address)

    def nobody(*arguments: Any, **more: Any) -> None:
        raise AssertionError(f"the address of {arguments[0]} was asked for")

    monkeypatch.setattr(socket.socket, "connect", only_here)
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    import wandb

    sit(tmp_path / "run", "wandb", until=8)
    (before,) = (tmp_path / "run/track/wandb").glob("offline-run-*")
    sit(tmp_path / "run", "wandb")
    wandb.teardown()
    (after,) = (tmp_path / "run/track/wandb").glob("offline-run-*")
    assert before.name.rpartition("-")[2] == after.name.rpartition("-")[2] == tracking.run_id(IDENTITY)
    found = rows(next(after.glob("*.wandb")))
    numbers = [(tag, int(row["update"]), value) for row in found for tag, value in row.items() if tag[0] != "_" and tag != "update"]
    assert alike(numbers) == alike(expected(tmp_path / "run"))
    assert len(found) == len(LINES) and os.environ["WANDB_ERROR_REPORTING"] == "false"
    assert capfd.readouterr() == ("", "")


def test_a_server_of_wandb_gets_no_line_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, float]] = []
    asked: dict[str, Any] = {}

    def init(**settings: Any) -> Any:
        asked.update(settings)
        return SimpleNamespace(starting_step=6, log=rows.append, define_metric=lambda *_, **__: None, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict, Error=RuntimeError))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "true")
    monkeypatch.setenv("WANDB_MODE", "online")
    sit(tmp_path, "wandb", until=8)
    assert (asked["settings"]["mode"], asked["resume"], os.environ["WANDB_ERROR_REPORTING"]) == ("online", "allow", "true")
    assert rows == [{"update": 4, "logs/q_loss": LINES[6][1]["q_loss"], "logs/kl": LINES[6][1]["kl"]}, {"update": 4, "heads/active": 0}]


@pytest.mark.parametrize("missing", [None, ModuleSpec("a mere folder", None)])
@pytest.mark.parametrize(("name", "needed"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_without_its_library_a_tracker_is_refused_at_once(
    name: str, needed: str, missing: ModuleSpec | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda library: missing)
    monkeypatch.chdir(tmp_path)
    for command in (["train", "ft", "--stream", "cn"], ["bench", "grid", "--streams", "cn"]):
        assert main([*command, "--track", name]) == 2
        assert f"--track {name} needs {needed}, which is not installed here; pip install 'comad[track]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_grid_hands_the_wish_on_to_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Any] = []

    def workshop(command: Any, log: Any, places: Any) -> Any:
        def run(cells: Any) -> Iterator[Waited]:
            commands.extend(map(command, cells))
            yield Waited()

        return SimpleNamespace(run=run)

    monkeypatch.setattr(grid, "Workshop", workshop)
    monkeypatch.setattr(grid, "locate", lambda *_: [])
    bench: Any = parse(["bench", "grid", "--streams", "cn", "--seeds", "0", "--track", "tensorboard", "wandb"])
    asked = bench.verb.grid()
    assert list(bench.verb.make(asked, list(asked.cells()))) == [Waited()]
    run: Any = parse(commands[0][3:])  # behind 'python -m comad'
    assert run.method.track == ("tensorboard", "wandb")


def test_nothing_but_tracking_needs_the_libraries() -> None:
    needing = {path for path in sources() if {"tensorboardX", "wandb"} & {name.split(".")[0] for name in imports(path.read_text())}}
    assert needing == {PACKAGE / "tracking.py"}
