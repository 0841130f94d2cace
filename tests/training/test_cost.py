import time

import jax
import jax.numpy as jnp

from comad.training.cost import Ledger


def test_seconds_go_where_they_were_spent_and_calls_that_compile_are_kept_apart() -> None:
    program = jax.jit(lambda number: number * 3.0 + 17.0)
    one, ledger = jnp.float32(1.0), Ledger()
    with ledger.timing("learning", 50):
        program(one)
    assert ledger.total()["learning_count"] == 0
    assert ledger.total()["compiling_seconds"] > 0
    with ledger.timing("learning", 50):
        program(one)
        time.sleep(0.02)
    with ledger.timing("evaluation", 1):
        time.sleep(0.01)
    found = ledger.total()
    assert (found["learning_count"], found["evaluation_count"]) == (50, 1)
    assert 0.02 <= found["learning_seconds"] < 0.5
    assert 0.01 <= found["evaluation_seconds"] < 0.5


def test_sittings_add_up_and_the_largest_memory_stays() -> None:
    before = {**Ledger().total(), "learning_seconds": 5.0, "learning_count": 100.0, "peak_bytes": 1e15}
    found = Ledger(before).total()
    assert (found["learning_seconds"], found["learning_count"], found["sittings"], found["peak_bytes"]) == (5.0, 100.0, 2.0, 1e15)
    assert 1e7 < Ledger().total()["peak_bytes"] < 1e13
