"""Data for methods to learn from."""

import jax
import pytest
from recorded import record

from comad.datasets.batches import gather, upload
from comad.datasets.packing import Packing
from comad.types import Batch


@pytest.fixture(scope="session")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Eight episodes of a team that acts at random."""
    dataset = record(tmp_path_factory.mktemp("data") / "random")
    index = Packing.plan(dataset.starts, dataset.lengths, 8).index(0, 0, 0)
    return jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index)
