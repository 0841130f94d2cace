"""Files of strangers: read, or refused in one sentence; no more memory than they hold, no other folder, nothing run."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from counting import SETTINGS, content, put, train
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placed import place
from readers import GRID, READERS
from reliability import tried
from spoiling import attack

from comad import checkpoint
from comad.cli import main
from comad.datasets.hdf5 import import_hdf5
from comad.datasets.store import open_dataset, seal
from comad.errors import UserError
from comad.files import MOST_JSON, parse_json, read_json
from comad.grid.cells import read_grid, with_profile
from comad.reports.results import gather
from comad.runs.record import read_run
from comad.runs.run import open_run

QUICK = ("grid", "safetensors", "run", "sealed dataset")
FUZZ = Path(__file__).with_name("fuzz.py")
SECONDS = os.environ.get("COMAD_FUZZ_SECONDS", "60")
pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of what a reader reads, made once."""
    folders: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("sound") / "folder"
            folders[name].mkdir()
            READERS[name].make(folders[name])
            READERS[name].read(folders[name])
        return folders[name]

    return make


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in READERS if name != "team"]
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(numbers=st.lists(st.integers(0, 2**31), min_size=1, max_size=40))
def test_a_spoiled_file_is_read_or_refused(
    name: str, sound: Callable[[str], Path], numbers: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, left = sound(name), iter(numbers)
    attack(READERS[name], folder, lambda below: next(left, 0) % below)
    tried()


@pytest.mark.slow
@pytest.mark.promise("hostile-files", "no-code")
@pytest.mark.parametrize("name", READERS)
def test_attacks_for_some_time(name: str) -> None:
    # Without the type checks of the tests, which would hide what happens to users; as long as make fuzz SECONDS=... is given.
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run([sys.executable, str(FUZZ), SECONDS, name], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    tried(json.loads(done.stdout.splitlines()[-1])[name])


def measured(read: Callable[[], object]) -> float:
    """Let something be refused; the most memory it took meanwhile, in bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


LITTLE = 20e6
CLAIMS = (10**9, 10**12, 10**15)


@pytest.mark.promise("memory")
def test_a_manifest_that_claims_much_takes_little(tmp_path: Path, sound: Callable[[str], Path]) -> None:
    def claims(number: int, *path: str) -> Path:
        folder = tmp_path / f"{number}-{'-'.join(path)}"
        shutil.copytree(sound("sealed dataset") / "cn-2-6x6-9t-2r" / "random", folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        inner = manifest
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = number
        if path == ("spec", "num_targets"):
            manifest["spec"]["actions"]["targeted"] = "attack"
        manifest["seal"] = seal(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    for number in CLAIMS:
        for path in (("statistics", "moments"), ("statistics", "episodes"), ("spec", "num_targets"), ("spec", "num_agents")):
            folder = claims(number, *path)
            assert measured(partial(open_dataset, folder)) < LITTLE
            tried()


@pytest.mark.promise("memory")
def test_arrays_that_claim_much_take_little(tmp_path: Path) -> None:
    for number in CLAIMS:
        header = json.dumps({"a": {"dtype": "F32", "shape": [number], "data_offsets": [0, 4 * number]}}).encode()
        path = tmp_path / f"{number}.safetensors"
        for length in (len(header), 10**15):
            path.write_bytes(struct.pack("<Q", length) + header)
            assert measured(partial(checkpoint.load, path, {"a": np.zeros(3, np.float32)})) < LITTLE
            assert measured(partial(checkpoint.notes, path)) < LITTLE
            tried(2)
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            for name, last in (
                ("obs", (2, 8)),
                ("state", (8,)),
                ("avail_actions", (2, 5)),
                ("actions", (2, 1)),
                ("actions_onehot", (2, 5)),
            ):
                file.create_dataset(
                    name, (number // 10, 10, *last), "f4" if name in ("obs", "state", "actions_onehot") else "i8", chunks=True
                )
            for name in ("reward", "terminated", "filled"):
                file.create_dataset(name, (number // 10, 10, 1), "f4" if name == "reward" else "u1", chunks=True)
        assert measured(partial(import_hdf5, tmp_path / f"{number}.h5", "cn-2", "x", tmp_path / "out")) < LITTLE
        tried()


@pytest.mark.promise("memory")
def test_runs_that_claim_much_take_little(tmp_path: Path) -> None:
    for number in CLAIMS:
        path = place(tmp_path / str(number), "comad", 0, [1.0, 1.0], budget={"updates": 10, "evaluations": number})
        assert measured(read_run(path).score_array) < LITTLE
        results, flaws = gather([tmp_path / str(number)])
        assert results == [] and len(flaws) == 1
        tried(2)
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 1_000_000)
    (tmp_path / "digits.json").write_text("9" * 100_000)
    with (tmp_path / "long.json").open("wb") as file:
        file.truncate(MOST_JSON + 1)  # takes no room on the disk either
    for name in ("deep", "digits", "long"):
        assert measured(partial(read_json, tmp_path / f"{name}.json")) < LITTLE
        tried()
    (tmp_path / "grid.toml").write_text("streams = " + "[" * 100_000)
    assert measured(lambda: read_grid(tmp_path / "grid.toml")) < LITTLE
    tried()


@pytest.mark.promise("paths")
def test_links_in_a_dataset_are_not_followed(tmp_path: Path, sound: Callable[[str], Path]) -> None:
    source = sound("sealed dataset") / "cn-2-6x6-9t-2r" / "random"
    for name in ("manifest.json", "reward.npy", "episode.start.npy"):
        folder = Path(shutil.copytree(source, tmp_path / name))
        (folder / name).rename(tmp_path / f"outside-{name}")
        (folder / name).symlink_to(tmp_path / f"outside-{name}")
        with pytest.raises(UserError, match=rf"{name}: is a link, which is not followed"):
            open_dataset(folder)
        tried()


@pytest.mark.promise("paths")
@pytest.mark.parametrize("name", ["lock", "settings.json", "scores.jsonl", "logs.jsonl", "heads.jsonl", "checkpoints"])
def test_links_in_a_run_are_neither_read_nor_written(tmp_path: Path, name: str) -> None:
    train(tmp_path / "run", until=9)
    outside = tmp_path / "outside"
    if name == "lock":
        outside.write_text("precious")
        (tmp_path / "run" / name).unlink(missing_ok=True)
    else:
        (tmp_path / "run" / name).rename(outside)
    (tmp_path / "run" / name).symlink_to(outside)
    before = content(outside) if outside.is_dir() else outside.read_bytes()
    with (
        pytest.raises(UserError, match=r"is a link, which is not followed|lock cannot be read or written"),
        open_run(tmp_path / "run", SETTINGS) as run,
    ):
        run.resume()
        read_run(tmp_path / "run")
    assert (content(outside) if outside.is_dir() else outside.read_bytes()) == before


@pytest.mark.promise("paths")
@pytest.mark.parametrize("name", ["../../x", "/etc", "a/b", "..", "a\x00b", "~"])
def test_a_grid_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    written = GRID.replace('methods = ["ft"]', f"methods = ['ft']\nqualities = [{json.dumps(name)}]")
    (tmp_path / "grid.toml").write_text(written)
    if name == "..":  # one of two parts of a folder's name, and as such nothing special
        (cell, *_) = with_profile(*read_grid(tmp_path / "grid.toml")).cells()
        assert cell.folder(tmp_path).parent == tmp_path / "cn-.."
        return
    with pytest.raises(UserError, match="a quality of data cannot be named"):
        with_profile(*read_grid(tmp_path / "grid.toml"))


@pytest.mark.promise("hostile-files")
def test_names_do_not_reach_the_terminal_as_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\u009b31m"
    place(tmp_path, "comad", 0, [1.0, 1.0], stream=evil)
    assert main(["report", str(tmp_path)]) == 0
    assert main(["report", str(tmp_path / evil)]) == 2
    assert main(["verify", str(tmp_path), str(tmp_path / evil)]) == main(["train", evil]) == 2  # as from 'runs/*'
    said = "".join(capsys.readouterr())
    assert "\\x1b" in said and not set(said) & set(evil[:1] + "\x07\u009b")


@pytest.mark.promise("damage")
@pytest.mark.parametrize("value", ["NaN", "1e999", '"\\ud800"', "-Infinity"])
def test_what_could_not_be_written_is_not_read(tmp_path: Path, value: str) -> None:
    put(tmp_path, {"a.json": f'{{"a": {value}}}'.encode()})
    with pytest.raises(UserError, match=r"a\.json: cannot be read as JSON"):
        read_json(tmp_path / "a.json")


@given(
    st.lists(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5), max_size=9)
)
@settings(max_examples=30, deadline=None)
def test_all_that_can_be_written_is_read_back(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value == parse_json(json.dumps(value, ensure_ascii=False).encode())
