"""The same settings on the same type of machine give the same hashes, method by method."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden import RECORDED, machine_type

from comad.methods import METHODS

GOLDEN = Path(__file__).with_name("golden.py")


def fresh(name: str) -> str:
    """The hash of a tiny run in a process of its own, with nothing cached and no options for tests."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"}
    done = subprocess.run([sys.executable, str(GOLDEN), name], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return str(json.loads(done.stdout)[name])


@pytest.mark.slow
@pytest.mark.promise("same-hashes")
@pytest.mark.parametrize("name", METHODS)
def test_a_tiny_run_has_its_hash(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = json.loads(RECORDED.read_text()).get(machine_type(), {}).get(name)
    if expected is None:
        with capsys.disabled():
            print(f"\nno hashes are recorded for {machine_type()}: two fresh runs of {name} are compared instead")
        expected = fresh(name)
    assert fresh(name) == expected, f"{name} computes something else than it did; if that is meant, 'python {GOLDEN} --record {name}'"


def test_recorded_hashes_are_of_methods_that_exist_and_no_two_are_the_same() -> None:
    for kind, found in json.loads(RECORDED.read_text()).items():
        assert found.keys() <= METHODS.keys() and len(set(found.values())) == len(found), kind
