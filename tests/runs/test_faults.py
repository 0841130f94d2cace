"""Killed anywhere and damaged anyhow, a run ends in the same bytes as one that was left in peace."""

import json
import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from counting import SETTINGS, commits, content, no_sync, put, train, train_in_process
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reliability import tried

from comad.errors import UserError
from comad.failpoints import FILE_POINTS, RUN_POINTS
from comad.runs import checkpoints
from comad.runs.record import read_run
from comad.runs.run import open_run

ONCE_PER_PROCESS = {"after-lock", "after-settings"}
LIVE_POINTS = [point for point in RUN_POINTS + FILE_POINTS if point != "while-clearing"]
INTERRUPTED_FILES = [f"checkpoints/{position:09d}.{ending}" for position in (4, 8, 10) for ending in ("json", "safetensors")]
INTERRUPTED_FILES += ["logs.jsonl", "heads.jsonl", "scores.jsonl"]
VOUCHED_FILES = ("heads.jsonl", "scores.jsonl")


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", no_sync)
        yield


def without_aside(folder: Path) -> dict[str, bytes]:
    """Every file of a run but those that it goes on without."""
    return {name: data for name, data in content(folder).items() if not name.startswith("set-aside/")}


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """All files of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("peaceful") / "run"
    assert train(folder) == (0, {})
    return content(folder)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """All files of a run that stopped one step after a checkpoint."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    train(folder, until=11)
    return content(folder)


def test_a_run_in_peace_keeps_its_last_two_checkpoints_and_its_milestones(peaceful: dict[str, bytes]) -> None:
    assert list(commits(peaceful)) == [4, 8, 12, 14]
    assert len(peaceful["scores.jsonl"].splitlines()) == 14 and len(peaceful["heads.jsonl"].splitlines()) == 2


@pytest.mark.promise("killed-run")
@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("point", LIVE_POINTS)
def test_killed_at_a_failpoint_it_ends_in_the_same_bytes(tmp_path: Path, peaceful: dict[str, bytes], point: str, when: str) -> None:
    folder = tmp_path / "run"
    later = ["half-line:22", f"{point}:{1 if point in ONCE_PER_PROCESS else 2}"]
    for failpoint in [f"{point}:1"] if when == "first" else later:
        before = commits(content(folder))
        assert train_in_process(folder, failpoint) == -signal.SIGKILL
        after = commits(content(folder))
        assert len(after) >= min(2, len(before)), "one was deleted before the next could be relied on"
    assert train(folder) == (max(after, default=0), {}), "every committed checkpoint counts"
    assert content(folder) == peaceful


def test_a_failpoint_without_a_number_means_the_first_time(tmp_path: Path) -> None:
    assert train_in_process(tmp_path / "run", "after-commit") == -signal.SIGKILL
    assert list(commits(content(tmp_path / "run"))) == [2]


@pytest.mark.promise("killed-run")
def test_killed_at_one_point_after_the_other_it_ends_in_the_same_bytes(tmp_path: Path, peaceful: dict[str, bytes]) -> None:
    killed = [train_in_process(tmp_path / "run", point) for point in LIVE_POINTS if point != "while-deleting"]
    assert killed == [-signal.SIGKILL] * len(killed)
    train(tmp_path / "run")
    assert content(tmp_path / "run") == peaceful


@pytest.mark.promise("killed-run")
def test_from_every_state_that_the_disk_goes_through_it_ends_in_the_same_bytes(
    tmp_path: Path, peaceful: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[dict[str, bytes]] = []

    def watched(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if content(tmp_path / "run") not in states:
                states.append(content(tmp_path / "run"))
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for function in ("os.fsync", "os.replace", "os.unlink", "os.chmod"):
            patch.setattr(function, watched(getattr(os, function.removeprefix("os."))))
        train(tmp_path / "run")
    assert len(states) > 35 and len({tuple(commits(state)) for state in states}) >= 10
    for number, state in enumerate(states):
        put(tmp_path / str(number), state)
        assert train(tmp_path / str(number)) == (max(commits(state), default=0), {})
        assert content(tmp_path / str(number)) == peaceful
        tried()


@pytest.mark.promise("killed-run")
def test_a_fresh_start_killed_half_way_can_be_repeated_or_taken_back(tmp_path: Path, peaceful: dict[str, bytes]) -> None:
    for name in ("repeated", "taken-back"):
        put(tmp_path / name, peaceful)
        assert train_in_process(tmp_path / name, "while-clearing:3", "--fresh") == -signal.SIGKILL
        assert len(without_aside(tmp_path / name)) == len(peaceful) - 3
    assert train(tmp_path / "repeated", fresh=True)[0] == 0
    assert train(tmp_path / "taken-back")[0] == 14
    assert without_aside(tmp_path / "repeated") == peaceful
    for name in ("repeated", "taken-back"):
        assert set(peaceful.values()) <= set(content(tmp_path / name).values()), "something was deleted"


Damage = tuple[str, str, float, int]
"""A file, what happens to it, where, and the bits that are flipped."""
DAMAGE = st.tuples(st.sampled_from(INTERRUPTED_FILES), st.sampled_from(["flip", "cut", "delete"]), st.floats(0, 1), st.integers(1, 255))


def damaged(files: dict[str, bytes], damage: Damage) -> dict[str, bytes]:
    name, kind, share, bits = damage
    data = files.get(name, b"")
    place = min(int(share * len(data)), len(data) - 1)
    if kind == "delete" or not data:
        return {other: data for other, data in files.items() if other != name}
    changed = data[:place] if kind == "cut" else data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]
    return {**files, name: changed}


def is_whole(position: int, before: dict[str, bytes], now: dict[str, bytes]) -> bool:
    """Whether a checkpoint is untouched: the same facts, the same arrays, the same journals of results up to its time."""
    name = f"checkpoints/{position:09d}"
    facts = json.loads(before[f"{name}.json"])
    try:
        same = json.loads(now.get(f"{name}.json", b"").decode()) == facts
    except ValueError:
        return False
    same &= now.get(f"{name}.safetensors") == before[f"{name}.safetensors"]
    sizes = {f"{journal}.jsonl": mark["size"] for journal, mark in facts["journals"].items()}
    return same and all(now.get(name, b"")[: sizes[name]] == before[name][: sizes[name]] for name in VOUCHED_FILES)


@pytest.mark.promise("damage")
@given(damages=st.lists(DAMAGE, min_size=1, max_size=3))
@example(damages=[("heads.jsonl", "delete", 0.0, 1)])
@example(damages=[("logs.jsonl", "flip", 0.0, 1)])
@example(damages=[("logs.jsonl", "cut", 0.99, 1)])
@example(damages=[(f"checkpoints/{position:09d}.json", "delete", 0.0, 1) for position in (4, 8, 10)])
@settings(max_examples=50, deadline=None)
def test_damaged_files_are_named_and_cost_only_time(
    interrupted: dict[str, bytes], peaceful: dict[str, bytes], damages: list[Damage]
) -> None:
    assert set(INTERRUPTED_FILES) | {"settings.json", "seal.json"} == set(interrupted)
    tried()
    now = interrupted
    for damage in damages:
        now = damaged(now, damage)
    whole = [position for position in commits(interrupted) if is_whole(position, interrupted, now)]
    with tempfile.TemporaryDirectory() as temporary:
        put(Path(temporary), now)
        if not whole:
            with pytest.raises(UserError, match=r"can be relied on \(.*nothing was changed.*--fresh|without its checkpoints.*--fresh"):
                train(Path(temporary))
            assert content(Path(temporary)) == now
            return
        began, skipped = train(Path(temporary))
        after = content(Path(temporary))
    assert began == max(whole)
    assert list(skipped) == [Path(name).name for position, name in reversed(commits(now).items()) if position > began]
    assert now.get("scores.jsonl", b"") in after.values() or not skipped, "records were lost"
    assert all(now[name] in after.values() for position, name in commits(now).items() if position > began), "a checkpoint was lost"
    ours = {name: data for name, data in after.items() if not name.startswith("set-aside/")}
    expected = {name: data for name, data in peaceful.items() if not is_older(name, began)}
    if now.get("logs.jsonl") == interrupted["logs.jsonl"]:
        assert {name: data for name, data in ours.items() if not is_older(name, began)} == expected
    else:  # only the record of the losses suffers, and the checkpoints say so
        same = {name for name in expected if name.endswith(".safetensors") or name in (*VOUCHED_FILES, "seal.json", "settings.json")}
        assert {name: ours[name] for name in same} == {name: expected[name] for name in same}


def is_older(name: str, position: int) -> bool:
    """Whether a file belongs to a checkpoint before a position: how many of these are kept depends on what was found."""
    return name.startswith("checkpoints/") and int(Path(name).stem) < position


@pytest.mark.promise("damage")
def test_what_is_skipped_is_explained(tmp_path: Path, interrupted: dict[str, bytes]) -> None:
    put(tmp_path, interrupted)
    (tmp_path / "checkpoints/000000010.json").write_bytes(b"{}")
    (tmp_path / "checkpoints/000000008.safetensors").write_bytes(b"short")
    began, skipped = train(tmp_path)
    assert began == 4 and skipped == {
        "000000010.json": "it does not describe a checkpoint (KeyError('journals'))",
        "000000008.json": "000000008.safetensors has 5 bytes instead of 32",
    }


@pytest.mark.promise("damage")
def test_where_nothing_can_be_relied_on_nothing_is_changed_unless_a_fresh_start_moves_it_aside(
    tmp_path: Path, interrupted: dict[str, bytes], peaceful: dict[str, bytes]
) -> None:
    put(tmp_path, {**interrupted, "scores.jsonl": b"x" + interrupted["scores.jsonl"][1:]})
    before = content(tmp_path)
    with pytest.raises(
        UserError, match=r"none of its 3 checkpoints can be relied on \(000000010.json: scores.jsonl is damaged: its first "
    ):
        train(tmp_path)
    assert content(tmp_path) == before
    assert train(tmp_path, fresh=True) == (0, {})
    assert without_aside(tmp_path) == peaceful
    assert {name.removeprefix("set-aside/001/"): data for name, data in content(tmp_path).items() if "set-aside" in name} == before


@pytest.mark.promise("damage")
@pytest.mark.parametrize("how", ["flip", "cut", "delete"])
def test_a_damaged_log_of_a_finished_run_costs_nothing_else(tmp_path: Path, peaceful: dict[str, bytes], how: str) -> None:
    put(tmp_path, damaged(peaceful, ("logs.jsonl", how, 0.01, 1)))
    before = content(tmp_path)
    assert train(tmp_path) == (14, {})
    after = content(tmp_path)
    assert {**after, "logs.jsonl": b""} == {**before, "logs.jsonl": b""}
    assert after["logs.jsonl"].startswith(before.get("logs.jsonl", b"")), "what is left of it is kept"
    record = read_run(tmp_path)
    assert len(record.scores) == 14 and all("loss" in line for line in record.logs)
    assert damaged_logs(tmp_path).startswith("logs.jsonl ")


@pytest.mark.promise("damage")
def test_a_log_that_was_damaged_on_the_way_is_marked_for_good(tmp_path: Path, interrupted: dict[str, bytes]) -> None:
    put(tmp_path, damaged(interrupted, ("logs.jsonl", "flip", 0.5, 1)))
    assert train(tmp_path) == (10, {})
    files = content(tmp_path)
    assert [json.loads(files[name]).get("damaged") for position, name in commits(files).items() if position > 10] == [["logs"]] * 2
    assert damaged_logs(tmp_path) == "they were found damaged at an earlier launch"


def damaged_logs(folder: Path) -> str:
    """Why the logs of a run are not as they were at its newest checkpoint."""
    found, _ = checkpoints.newest(folder)
    assert found is not None
    return checkpoints.damaged_diagnostics(folder, found)["logs"]


@pytest.mark.promise("paths")
def test_a_checkpoint_that_points_elsewhere_is_not_followed(tmp_path: Path, interrupted: dict[str, bytes]) -> None:
    put(tmp_path, interrupted)
    path = tmp_path / "checkpoints/000000010.json"
    path.write_text(path.read_text().replace("000000010.safetensors", "000000008.safetensors"))
    assert train(tmp_path) == (8, {"000000010.json": "it does not describe the checkpoint of its name"})


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.promise("full-disk")
@pytest.mark.parametrize("size", [10, 100, 200, 500, 1000])
def test_on_a_full_disk_it_stops_and_later_ends_in_the_same_bytes(tmp_path: Path, peaceful: dict[str, bytes], size: int) -> None:
    with limited(size), pytest.raises(UserError, match=r"cannot be read or written \(File too large\)"):
        train(tmp_path / "run")
    train(tmp_path / "run")
    assert content(tmp_path / "run") == peaceful


@pytest.mark.promise("full-disk")
def test_a_line_that_did_not_fit_leaves_no_half(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", SETTINGS) as run:
        run.resume()
        run.append("scores", {"score": 1})
        with limited(20), pytest.raises(UserError, match="File too large"):
            run.append("scores", {"score": 2})
        run.append("scores", {"score": 3})
        run.save(1, lambda path: path.touch())
    assert [line["score"] for line in read_run(tmp_path / "run").scores] == [1, 3]
