"""What the suite owes every machine: no test waits for time, and nothing of a run outlasts it or meets another run."""

import ast
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, configuration, given, settings
from hypothesis import strategies as st
from jax.experimental.compilation_cache import compilation_cache
from jaxtyping import Array

from comad.cache import cache_folder

TESTS = Path(__file__).parent
CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}


def clock_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Every call of a clock of the module `time`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"time.{clock}" for clock in CLOCKS}:
            yield node


def waits_and_races(source: str) -> list[str]:
    """The lines of a test that wait for time instead of for an event, or that assert something of a clock."""
    tree = ast.parse(source)
    polls = {inner for node in ast.walk(tree) if isinstance(node, ast.While) for inner in ast.walk(node)}
    sleeps = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep"]
    judged = [node for node in ast.walk(tree) if isinstance(node, ast.Assert) and any(clock_calls(node))]
    return [ast.unparse(node) for node in (*(sleep for sleep in sleeps if sleep not in polls), *judged)]


def test_no_test_waits_for_time_or_judges_by_it() -> None:
    assert waits_and_races("time.sleep(1)\nassert time.monotonic() - began < 3") == ["time.sleep(1)", "assert time.monotonic() - began < 3"]
    assert waits_and_races("while not there:\n    time.sleep(1)") == []
    found = {str(path.relative_to(TESTS)): waits_and_races(path.read_text()) for path in TESTS.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_properties_are_tried_with_the_same_examples_however_slow_the_machine_is() -> None:
    default = settings()
    assert default.derandomize and default.database is None and default.deadline is None
    assert HealthCheck.too_slow in default.suppress_health_check
    assert not configuration.storage_directory().path.is_relative_to(TESTS.parent)


def test_properties_are_tried_with_the_same_examples_whatever_else_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[int]] = []

    @given(st.lists(st.integers(), min_size=5))
    def anything(numbers: list[int]) -> None:
        tried.append(numbers)

    anything()
    first, tried[:] = list(tried), []
    monkeypatch.syspath_prepend(tmp_path)
    for module in range(10):
        (tmp_path / f"of_another_{module}.py").write_text(f"NUMBERS = {[10**6 * module + number for number in range(1000, 1100)]}")
        importlib.import_module(f"of_another_{module}")
    anything()
    assert tried == first


def test_compiled_programs_of_tests_stay_out_of_the_home_folder() -> None:
    folder = Path(os.environ["COMAD_TEST_FOLDER"])
    assert folder.is_relative_to(tempfile.gettempdir()) and cache_folder().is_relative_to(folder)
    assert Path(str(jax.config.values["jax_compilation_cache_dir"])).is_relative_to(folder)


def compiled() -> Callable[[Array], Array]:
    """The same program every time, but one that JAX has not seen in this process."""

    def torn_on_purpose(number: Array) -> Array:
        return jnp.cumsum(jnp.sin(number)) * 3.0 + 17.0

    return jax.jit(torn_on_purpose)


@pytest.fixture
def empty_cache(tmp_path: Path) -> Iterator[Path]:
    """A cache of compiled programs that JAX opens anew, wherever earlier tests have left it."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: jax.config.values[name] for name in names}
    jax.config.update(names[0], str(tmp_path / "programs"))
    jax.config.update(names[1], 0.0)
    compilation_cache.reset_cache()
    yield tmp_path / "programs"
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_a_program_that_another_process_is_still_writing_is_compiled_here(empty_cache: Path) -> None:
    expected = compiled()(jnp.ones(5)).tolist()
    (kept,) = empty_cache.glob("jit_torn_on_purpose-*-cache")
    for size in (0, kept.stat().st_size // 2):
        os.truncate(kept, size)
        assert compiled()(jnp.ones(5)).tolist() == expected


def test_a_run_of_the_suite_leaves_nothing_behind(tmp_path: Path) -> None:
    environment: dict[str, Any] = {name: value for name, value in os.environ.items() if name not in ("COMAD_TEST_FOLDER", "COMAD_CACHE")}
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir()
    there = {**environment, "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["-p", "no:cacheprovider", "--collect-only", str(TESTS / "test_metrics.py")]
    subprocess.run([sys.executable, "-m", "pytest", *words], cwd=TESTS.parent, env=there, check=True, capture_output=True)
    assert list(tmp_path.rglob("*")) == [tmp_path / "tmp", tmp_path / "home"]
