"""Strict mode for every test: shapes are checked at run time, silent broadcasting is an error, NaN stops at its origin."""

import os
import tempfile
from collections.abc import Iterator

# Tests compile much and compute little: without optimization, and with loops written the plain way, programs are there in half the time.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"

from jaxtyping import install_import_hook

install_import_hook("comad", "beartype.beartype").__enter__()  # before anything of the package is imported

import jax  # noqa: E402
import pytest  # noqa: E402

# Many tests compile the same programs: all processes of a test run share what they have compiled.
os.environ.setdefault("COMAD_TEST_CACHE", tempfile.mkdtemp(prefix="comad-tests-"))
jax.config.update("jax_compilation_cache_dir", os.environ["COMAD_TEST_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_nans", True)

from reliability import pytest_configure, pytest_runtest_setup  # noqa: E402, F401


@pytest.fixture(scope="module")
def quick_disk() -> Iterator[None]:
    """Nobody waits for the disk: what a killed process has written is there without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield
