"""Compiled programs are kept only where nobody else can put theirs."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from comad.cache import compile_folder, enable_compile_cache
from comad.machine import available_cores

PROGRAMS = f"xla-{len(available_cores())}"
"""XLA divides work among cores while it compiles, so programs for another number of cores are other programs."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.setenv("COMAD_CACHE", str(tmp_path / "deep" / "cache"))
    yield tmp_path / "deep" / "cache"
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def test_the_cache_is_private(cache: Path) -> None:
    assert enable_compile_cache() == cache / PROGRAMS
    assert jax.config.values["jax_compilation_cache_dir"] == str(cache / PROGRAMS)
    assert [path.stat().st_mode & 0o777 for path in (cache, cache / PROGRAMS)] == [0o700, 0o700]


def test_the_home_folder_is_the_default(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMAD_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compile_folder() == tmp_path / ".cache" / "comad" / PROGRAMS


@pytest.mark.parametrize("folder", ["", PROGRAMS])
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_refused(cache: Path, folder: str, mode: int) -> None:
    (cache / PROGRAMS).mkdir(parents=True)
    (cache / folder).chmod(mode)
    assert enable_compile_cache() is None
    assert jax.config.values["jax_compilation_cache_dir"] != str(cache / PROGRAMS)


def test_a_folder_that_others_may_only_read_is_fine(cache: Path) -> None:
    (cache / PROGRAMS).mkdir(parents=True)
    cache.chmod(0o755)
    assert enable_compile_cache() == cache / PROGRAMS


def test_a_folder_that_cannot_be_made_is_done_without(cache: Path) -> None:
    cache.parent.mkdir()
    cache.touch()
    assert enable_compile_cache() is None
