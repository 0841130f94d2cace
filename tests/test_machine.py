"""Equal cores give equal bytes, whoever starts a run, and a run is not made half on one kind of machine and half on another."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from counting import SETTINGS
from placed import place
from recorded import record
from reliability import tried

from comad.datasets import library
from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.files import sha256
from comad.machine import add_flag, available_cores, claim_cores, describe_machine, effective_flags, processor, use_cores
from comad.reports.results import gather
from comad.runs.folder import read_settings, write_settings
from comad.runs.run import open_run

ENV = Navigation(2, 5, limit=4)
BUDGET = ["--updates", "6", "--evaluations", "1", "--episodes", "2", "--batch", "4"]
MACHINE = describe_machine()
OTHERS: dict[str, dict[str, Any]] = {
    "cores": {"cores": MACHINE["cores"] + 1},
    "processor": {"processor": "another one"},
    "xla_flags": {"xla_flags": ["--xla_cpu_enable_fast_math=true"]},
    "jaxlib": {"jaxlib": "0.0.1"},
    "system": {"system": "Plan9 mips"},
    "jax_settings": {"jax_settings": {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}},
    "accelerator": {"accelerator": "a large one"},
}


@pytest.mark.promise("mixed-machines")
@pytest.mark.parametrize("name", OTHERS)
def test_a_run_begun_on_another_kind_of_machine_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with open_run(tmp_path, {**SETTINGS, "machine": {**MACHINE, **OTHERS[name]}}):
        pass
    before = (tmp_path / "settings.json").read_bytes()
    refusal = pytest.raises(UserError, match=rf"begun on another machine.*machine\.{name}\S* .*--accept-other-machine")
    with refusal, open_run(tmp_path, {**SETTINGS, "machine": MACHINE}):
        pass
    assert (tmp_path / "settings.json").read_bytes() == before
    with open_run(tmp_path, {**SETTINGS, "machine": MACHINE}, accept_other_machine=True):
        pass
    settings = read_settings(tmp_path)
    assert settings["machine"] == MACHINE and settings["earlier"][0]["machine"] == {**MACHINE, **OTHERS[name]}
    with open_run(tmp_path, {**SETTINGS, "machine": MACHINE}):
        pass  # from here on it is this one


@pytest.mark.promise("mixed-machines")
def test_a_setting_of_jax_that_changes_numbers_is_part_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_ENABLE_X64"):
        monkeypatch.setenv(name, "1")
        assert describe_machine() == {**MACHINE, "jax_settings": {name: "1"}}
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")  # tells more, and computes the same
    assert describe_machine() == MACHINE


@pytest.mark.promise("mixed-machines")
def test_an_accelerator_is_part_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    jax.devices()
    assert "accelerator" not in describe_machine()
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    monkeypatch.setattr("jax.devices", lambda: [SimpleNamespace(device_kind="a large one")])
    assert describe_machine()["accelerator"] == "a large one"


def test_of_a_flag_that_is_given_twice_the_last_counts() -> None:
    assert effective_flags("--b=1 --a=2 --b=3") == ["--a=2", "--b=3"]
    assert effective_flags("--b=3 --a=2 --b=1") == ["--a=2", "--b=1"]


@pytest.mark.promise("mixed-machines")
def test_the_report_marks_a_run_of_two_kinds_of_machine(tmp_path: Path) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    settings = read_settings(run)
    write_settings(run, {**settings, "machine": {"cores": 1}, "earlier": [{"machine": {"cores": 2}}, {"machine": {"cores": 1}}]})
    [_result], [flaw] = gather([tmp_path])
    assert flaw.counted and "made on 2 kinds of machine: machine.cores is 2 there and 1 here" in flaw.why
    write_settings(run, {**settings, "machine": {"cores": 1}, "earlier": [{"libraries": {}, "machine": {"cores": 1}}]})
    assert gather([tmp_path])[1] == []


def train(folder: Path, *options: str, pinned: bool = False) -> "subprocess.CompletedProcess[str]":
    """Trains a tiny run by hand, with as many cores as this machine has, unless it is pinned to one from outside."""
    words = ["train", "ft", "--tasks", ENV.spec.env, "--quality", "random", *BUDGET, "--data", str(folder.parent / "data")]
    command = [sys.executable, "-m", "comad", *words, "--out", str(folder), *options]
    before = os.sched_getaffinity(0)
    if pinned:
        os.sched_setaffinity(0, {min(before)})
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(folder))
    finally:
        os.sched_setaffinity(0, before)


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "COMAD_CACHE": str(folder.parent / "cache")}


def bytes_of(folder: Path) -> dict[str, str]:
    names = ("scores.jsonl", "heads.jsonl", "logs.jsonl", "checkpoints/000000006.safetensors")
    return {name: sha256(folder / name) for name in names}


@pytest.mark.promise("mixed-machines")
def test_one_core_gives_the_same_bytes_by_hand_pinned_and_in_a_grid(tmp_path: Path) -> None:
    record(library.place(ENV.spec.env, "random", tmp_path / "data"), ENV, episodes=40)
    asked, pinned = train(tmp_path / "asked", "--cores", "1"), train(tmp_path / "pinned", pinned=True)
    assert asked.returncode == pinned.returncode == 0, asked.stderr + pinned.stderr
    words = ["bench", "grid", "--streams", ENV.spec.env, "--qualities", "random", "--methods", "ft", "--seeds", "0", *BUDGET]
    grid = [sys.executable, "-m", "comad", *words, "--data", str(tmp_path / "data"), "--out", str(tmp_path / "grid")]
    made = subprocess.run(grid, capture_output=True, text=True, check=False, env=environment(tmp_path / "asked"))
    assert made.returncode == 0, made.stderr
    [gridded] = (tmp_path / "grid").glob("*/ft-seed0")
    assert bytes_of(tmp_path / "asked") == bytes_of(tmp_path / "pinned") == bytes_of(gridded)
    machines = [read_settings(path)["machine"] for path in (tmp_path / "asked", tmp_path / "pinned", gridded)]
    assert machines[0] == machines[1] == machines[2] and machines[0]["cores"] == 1
    tried(3)
    if len(available_cores()) > 1:
        mixed = train(tmp_path / "asked")
        assert mixed.returncode == 2 and re.search(r"machine\.cores is 1 there and \d+ here", mixed.stderr)
        assert len(mixed.stderr.splitlines()) == 1


def test_more_cores_than_there_are_is_a_sentence() -> None:
    with pytest.raises(UserError, match=rf"--cores is 1000, but this process may use only {len(available_cores())}"):
        use_cores(1000)


def test_cores_that_another_run_has_claimed_are_left_to_it(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from comad import machine; "
    script += "print(*machine.claim_cores(1, [3, 5], Path(sys.argv[1])), flush=True); input()"
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout and first.stdout.readline() == "3\n"
        second = subprocess.run(command, input="\n", capture_output=True, text=True, check=True)
        assert second.stdout == "5\n"
        first.communicate("\n")
    third = subprocess.run(command, input="\n", capture_output=True, text=True, check=True)
    assert third.stdout == "3\n", "the claim ends with its process"


def test_without_a_place_for_claims_any_cores_will_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert claim_cores(2, [0, 1, 2], tmp_path / "file" / "cores") == {0, 1}


def test_a_flag_is_there_once_and_the_processor_has_a_name(tmp_path: Path) -> None:
    assert add_flag("", "--a") == "--a" and add_flag("--a --b", "--a") == "--b --a"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Quick 9000 @ 3 GHz\nmodel name\t: Quick 9000 @ 3 GHz\n")
    assert processor(tmp_path / "cpuinfo") == "Quick 9000 @ 3 GHz"
    assert processor(tmp_path / "absent")
