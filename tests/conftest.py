"""Strict mode for every test: shapes are checked at run time, silent broadcasting is an error, NaN stops at its origin."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Tests compile much and compute little: without optimization, and with loops written the plain way, programs are there in half the time.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"

from jaxtyping import install_import_hook

install_import_hook("comad", "beartype.beartype").__enter__()  # before anything of the package is imported

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, configuration, settings  # noqa: E402
from hypothesis.internal.conjecture import providers  # noqa: E402
from hypothesis.internal.constants_ast import Constants  # noqa: E402

from comad.cache import compile_folder  # noqa: E402

# All processes of one run of the tests share what they have compiled, and nothing of it is left to the next run or to the user.
if "COMAD_TEST_FOLDER" not in os.environ:
    os.environ["COMAD_TEST_FOLDER"] = tempfile.mkdtemp(prefix="comad-tests-")
    atexit.register(shutil.rmtree, os.environ["COMAD_TEST_FOLDER"], ignore_errors=True)
FOLDER = Path(os.environ["COMAD_TEST_FOLDER"])
os.environ["COMAD_CACHE"] = str(FOLDER)
os.environ.pop("COMAD_DATA", None)  # datasets of the user are none of the tests'
jax.config.update("jax_compilation_cache_dir", str(compile_folder()))  # where the program itself puts it, whichever is first
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_nans", True)
jax.devices()  # JAX runs on all cores from now on: no test can restrict this process, and with it all tests after it, to fewer

# One run of the tests tries what every other tries, however fast its machine: a property that fails, fails everywhere.
configuration.set_hypothesis_home_dir(FOLDER / "hypothesis")
settings.register_profile("same", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")
setattr(providers, "_get_local_constants", Constants)  # noqa: B010  # else numbers of whatever module is imported are drawn too

from reliability import pytest_configure, pytest_runtest_setup  # noqa: E402, F401


@pytest.fixture(scope="module")
def quick_disk() -> Iterator[None]:
    """Nobody waits for the disk: what a killed process has written is there without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield
