"""Methods in small: their states on two tasks of a tiny world."""

from functools import partial
from typing import Any

import jax
from recorded import FULL_VIEW

from comad import streams

STREAM = streams.custom(["first", "second"], threshold=1e9)
KEY = jax.random.key(0)


def make(method: Any) -> Any:
    """A fresh state, with four updates per task announced."""
    return jax.jit(partial(method.init, stream=STREAM, specs=(FULL_VIEW.spec,) * 2, updates=4))(KEY)


def same(first: Any, second: Any) -> bool:
    """Equal to the last bit."""
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), first, second)))
