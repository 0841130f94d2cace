from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from comad.training import cost
from comad.training.cost import Ledger


def test_seconds_go_where_they_were_spent_and_calls_that_compile_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    program = jax.jit(lambda number: number * 3.0 + 17.0)
    one, ledger = jnp.float32(1.0), Ledger()
    with ledger.timing("learning", 50):
        program(one)
        now[0] += 8.0
    assert ledger.total()["learning_count"] == 0
    assert ledger.total()["compiling_seconds"] == 8.0
    with ledger.timing("learning", 50):
        program(one)
        now[0] += 2.0
    with ledger.timing("evaluation", 1):
        now[0] += 1.0
    found = ledger.total()
    assert (found["learning_count"], found["evaluation_count"]) == (50, 1)
    assert (found["learning_seconds"], found["evaluation_seconds"], found["compiling_seconds"]) == (2.0, 1.0, 8.0)


def test_sittings_add_up_and_the_largest_memory_stays() -> None:
    before = {**Ledger().total(), "learning_seconds": 5.0, "learning_count": 100.0, "peak_bytes": 1e15}
    found = Ledger(before).total()
    assert (found["learning_seconds"], found["learning_count"], found["sittings"], found["peak_bytes"]) == (5.0, 100.0, 2.0, 1e15)
    assert 1e7 < Ledger().total()["peak_bytes"] < 1e13
