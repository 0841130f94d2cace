"""Disks that are full or cannot be written, clocks that go backwards, and damage: one sentence, nothing lost, the same end."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import pytest
import teaching
from counting import commits, content, put, train
from hypothesis import given, settings
from hypothesis import strategies as st
from killing import leftovers
from recorded import record
from reliability import tried

from comad.cli import main
from comad.cli.listing import List
from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.experts import library, training
from comad.files import write_bytes

pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """All files of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("peaceful") / "run"
    train(folder)
    return content(folder)


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[str], None]]:
    """A disk of its own, and how to mount it in another way."""

    def mount(*options: str) -> None:
        subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)

    folder.mkdir(exist_ok=True)
    try:
        mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a disk of its own")
    try:
        yield lambda option: mount("-o", f"remount,{option}")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.promise("full-disk")
def test_a_run_on_a_full_disk_goes_on_when_there_is_space(tmp_path: Path, peaceful: dict[str, bytes]) -> None:
    reached = set()
    for kilobytes in range(4, 64, 4):
        with small_disk(tmp_path / "disk", kilobytes) as remount:
            try:
                train(tmp_path / "disk" / "run")
            except UserError as error:
                assert "No space left on device" in str(error)
                reached.add(max(commits(content(tmp_path / "disk" / "run")), default=0))
                tried()
            remount("size=1M")
            train(tmp_path / "disk" / "run")
            assert content(tmp_path / "disk" / "run") == peaceful
    assert len(reached) > 3, "the disk was full at several places"


@pytest.mark.promise("full-disk", "read-only")
def test_whatever_is_written_a_disk_that_refuses_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, card = teaching.shipped_in_small()
    with small_disk(tmp_path / "disk", 16) as remount:
        disk = tmp_path / "disk"
        for option, reason in (("size=4k", "No space left on device"), ("ro", "Read-only file system")):
            remount(option)
            with pytest.raises(OSError, match=reason) as error:
                write_bytes(disk / "file", b"x" * 20_000)
            assert str(disk) in str(error.value)
            with pytest.raises(UserError, match=reason):
                record(disk / "data")
            with pytest.raises(OSError, match=reason):
                library.put(disk / "weights", agent, card)
            with pytest.raises(UserError, match=reason):
                train(disk / "run")
            monkeypatch.setattr(List, "run", lambda verb: write_bytes(disk / "list", b"x" * 20_000))
            assert main(["list"]) == 2
            said = capsys.readouterr().err
            assert reason in said and len(said.splitlines()) == 1
            assert leftovers(disk) == [] and all(path.is_dir() or not path.stat().st_size for path in disk.glob("*"))
            tried(5)


@pytest.mark.promise("clock")
def test_a_clock_that_is_set_back_changes_nothing(tmp_path: Path, peaceful: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [4e9]

    def backwards() -> float:
        now[0] -= 3600.0
        return now[0]

    monkeypatch.setattr(time, "time", backwards)
    monkeypatch.setattr(time, "time_ns", lambda: int(backwards() * 1e9))
    for until in (3, 6, 9, 14):
        train(tmp_path / "run", until=until)
        # Later files get earlier times, and some times have yet to come.
        for number, path in enumerate(sorted((tmp_path / "run").rglob("*"))):
            os.utime(path, (2e9 - 86_400 * number,) * 2)
        tried()
    final = commits(peaceful)[14]
    for name in (final, "scores.jsonl", "logs.jsonl", "heads.jsonl", "settings.json"):
        assert (tmp_path / "run" / name).read_bytes() == peaceful[name]


@pytest.mark.promise("clock", "damage")
def test_a_training_of_experts_skips_what_is_damaged_and_minds_no_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "evaluate", training.evaluate)
    monkeypatch.setattr(os, "fsync", os.fsync)
    teaching.stand_in()
    ticks = iter(range(1_000_000, 0, -7))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))  # after a restart of the machine it begins anew
    assert teaching.train(tmp_path / "whole") == []
    whole = teaching.end(tmp_path / "whole")
    for damage in ("checkpoints/000000003.safetensors", "checkpoints/000000003.json", "scores.jsonl"):
        folder = tmp_path / damage.replace("/", "-")
        assert teaching.train(folder, stop=3) == []
        data = bytearray((folder / damage).read_bytes())
        data[-9] ^= 4
        (folder / damage).write_bytes(bytes(data))
        told, kept = teaching.train(folder)
        assert told.startswith("checkpoint 000000003.json could not be used (") and told.endswith("); an earlier one was")
        assert kept == f"what the run goes on without is kept in {folder / 'set-aside' / '001'}"
        assert teaching.end(folder) == whole
        tried()
    with pytest.raises(UserError, match="holds another run: seed is 0 there and 1 here"):
        next(iter(training.train(teaching.ENV, teaching.FiveTurns(), 1, tmp_path / "whole", every=10)))
    # Nor is a training that began from one team that of another.
    list(training.train(teaching.ENV, teaching.FiveTurns(), 0, tmp_path / "from", every=10, start=jnp.float32(2.0)))
    assert teaching.end(tmp_path / "from") != whole
    with pytest.raises(UserError, match=r"holds another run: start is .* there and .* here"):
        next(iter(training.train(teaching.ENV, teaching.FiveTurns(), 0, tmp_path / "from", every=10, start=jnp.float32(3.0))))
    assert list(training.train(teaching.ENV, teaching.FiveTurns(), 0, tmp_path / "from", every=10, start=jnp.float32(2.0))) == []


def test_a_training_ends_at_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "evaluate", teaching.evaluate)
    seldom = training.train(teaching.ENV, teaching.FiveTurns(), 0, tmp_path / "seldom", every=20)
    assert [progress.steps for progress in seldom] == [20, 40, 50]
    assert teaching.train(tmp_path / "often") == []
    last = [training.read_curve(tmp_path / name)[-1].team for name in ("seldom", "often")]
    assert last[0] == last[1]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    library.put(folder, *teaching.shipped_in_small())
    return folder / "cn-2-5x5-6t-2r"


@pytest.mark.promise("damage")
@settings(max_examples=60, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_no_changed_bit_of_weights_goes_unnoticed(weights: Path, place: float, bit: int, cut: bool) -> None:
    tried()
    files = {path.name: path.read_bytes() for path in weights.iterdir()}
    data = files["expert.safetensors"]
    where = int(place * len(data))
    changed = data[:where] if cut else data[:where] + bytes([data[where] ^ 1 << bit]) + data[where + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        put(Path(folder) / weights.name, {**files, "expert.safetensors": changed})
        with pytest.raises(UserError, match=r"expert.safetensors: its bytes are not those its card was written for"):
            library.get(Navigation(2, 5, limit=6), "expert", Path(folder))
