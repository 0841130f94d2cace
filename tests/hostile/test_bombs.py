"""Small files that would unpack to much: refused in little memory, while sound files take what they say."""

import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from measuring import resident_peak
from reliability import tried

from comad.datasets.hdf5 import import_hdf5
from comad.datasets.hdf5_storage import BLOCK_BYTES, blocks
from comad.errors import UserError
from comad.grid.cells import read_grid, with_profile

LITTLE = 64e6
EPISODES, MOMENTS = 40, 51
WIDTHS = {
    "obs": (2, 8),
    "state": (8,),
    "avail_actions": (2, 5),
    "actions": (2, 1),
    "actions_onehot": (2, 5),
}
TYPES = {
    "obs": "f4",
    "state": "f4",
    "avail_actions": "i4",
    "actions": "i8",
    "actions_onehot": "f4",
    "reward": "f4",
    "terminated": "u1",
}
NAMES = (
    "obs",
    "state",
    "avail_actions",
    "actions",
    "actions_onehot",
    "reward",
    "terminated",
    "filled",
)


def shape(name: str, episodes: int = EPISODES) -> tuple[int, ...]:
    return (episodes, MOMENTS, *WIDTHS.get(name, (1,)))


def standing(name: str, episodes: int = EPISODES, recorded: int = MOMENTS) -> np.ndarray:
    """A field of CN-2 in which nobody ever moves; what is beyond the recorded moments is zero."""
    values = np.zeros(shape(name, episodes), TYPES.get(name, "i8"))
    if name in ("obs", "state", "filled", "avail_actions"):
        values[:, :recorded] = 1
    if name == "actions_onehot":
        values[:, :recorded, :, 0] = 1
    if name == "terminated":
        values[:, recorded - 2] = 1
    return values


def write(path: Path, replaced: dict[str, Callable[[h5py.File], Any]] | None = None, **fields: Any) -> Path:
    """A sound file, but for the fields that are made in another way."""
    with h5py.File(path, "w") as file:
        for name in NAMES:
            if name not in (replaced or {}):
                file.create_dataset(name, data=standing(name, **fields), compression="gzip")
        for make in (replaced or {}).values():
            make(file)
    return path


def zeros(size: int, times: int = 1) -> bytes:
    """A gzip stream of zeros, or a stream of such a stream."""
    stream = zlib.compressobj(9)
    data = b"".join([*(stream.compress(bytes(1 << 20)) for _ in range(size >> 20)), stream.flush()])
    for _ in range(times - 1):
        data = zlib.compress(data, 9)
    return data


def chunk(file: h5py.File, data: bytes, mask: int = 0, **options: Any) -> None:
    """The observations as one chunk of these very bytes."""
    options = {"compression": "gzip", **options}
    array = file.create_dataset("obs", shape("obs"), "f4", chunks=options.pop("chunks", shape("obs")), **options)
    array.id.write_direct_chunk((0, 0, 0, 0), data, filter_mask=mask)


def twice_packed(file: h5py.File) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(shape("obs"))
    properties.set_deflate(9)
    properties.set_deflate(9)
    made = h5py.h5d.create(file.id, b"obs", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(shape("obs")), properties)
    made.write_direct_chunk((0, 0, 0, 0), zeros(1 << 29, times=2))


def wide_chunks(file: h5py.File) -> None:
    array = file.create_dataset(
        "obs",
        shape("obs"),
        "f4",
        chunks=(10**5, *shape("obs")[1:]),
        maxshape=(None,) * 4,
        compression="gzip",
    )
    array.id.write_direct_chunk((0, 0, 0, 0), zeros(816 * 10**5 * 4))


def unwritten(file: h5py.File) -> None:
    file.create_dataset("obs", shape("obs"), "f4", chunks=(1, *shape("obs")[1:]), fillvalue=1.0)


def half_written(file: h5py.File) -> None:
    file.create_dataset("obs", shape("obs"), "f4", chunks=(1, *shape("obs")[1:]), compression="gzip")[:7] = 1.0


SOUND = zlib.compress(standing("obs").tobytes())
BOMBS: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "a stream far longer than its chunk": (
        lambda file: chunk(file, zeros(1 << 30)),
        "obs is not all there, or is not as large",
    ),
    "a stream shorter than its chunk": (
        lambda file: chunk(file, zlib.compress(bytes(9999), 0)),
        "not as large as it says",
    ),
    "a stream without an end": (lambda file: chunk(file, SOUND[:-9]), "obs is not all there"),
    "raw bytes shorter than their chunk": (
        lambda file: chunk(file, bytes(9999), mask=1),
        "not as large as it says",
    ),
    "a mask of filters that are not there": (
        lambda file: chunk(file, SOUND, mask=2),
        "obs is not all there",
    ),
    "a stream of a stream": (twice_packed, "obs is packed with other filters than gzip"),
    "another packing": (
        lambda file: file.create_dataset("obs", data=standing("obs"), compression="lzf"),
        "other filters than gzip",
    ),
    "chunks far larger than the array": (wide_chunks, "obs is stored in chunks of 326400000 bytes"),
    "chunks that were never written": (unwritten, "obs claims 32640 numbers"),
    "some chunks that were never written": (half_written, "obs is not all there"),
    "more dimensions": (
        lambda file: file.create_dataset("obs", (1,) * 32, "f4"),
        "its axes must be",
    ),
    "a shape that overflows": (
        lambda file: file.create_dataset("obs", (2**62, 51, 2, 8), "f4", chunks=(1, 51, 2, 8)),
        "obs has 4611",
    ),
    "compound numbers": (
        lambda file: file.create_dataset("obs", shape("obs"), [("a", "f4")] * 1 + [("b", "f4", 900)]),
        "obs holds",
    ),
    "texts": (
        lambda file: file.create_dataset("obs", shape("obs"), h5py.string_dtype()),
        "obs holds object",
    ),
    "references": (
        lambda file: file.create_dataset("obs", shape("obs"), h5py.ref_dtype),
        "obs holds object",
    ),
    "a circle": (lambda file: file.__setitem__("obs", file["/"]), "obs is not an array"),
}


@pytest.mark.promise("memory", "hostile-files")
@pytest.mark.parametrize("name", BOMBS)
def test_a_recording_that_unpacks_to_much_is_refused_in_little_memory(name: str, tmp_path: Path) -> None:
    make, message = BOMBS[name]
    source = write(tmp_path / "x.h5", {"obs": make})
    assert source.stat().st_size < 5e6

    def refused() -> None:
        with pytest.raises(UserError, match=message) as caught:
            import_hdf5(source, "cn-2", "x", tmp_path / "out")
        assert str(caught.value).startswith(str(source)) and not (tmp_path / "out").exists()

    assert resident_peak(refused) < LITTLE


@pytest.mark.promise("memory")
def test_moments_that_no_file_of_its_size_holds_are_refused_unread(tmp_path: Path) -> None:
    source = write(tmp_path / "x.h5", episodes=12_000)
    assert source.stat().st_size < 1e6

    def refused() -> None:
        with pytest.raises(
            UserError,
            match=r"its 612000 moments unpack to 125 MB, over 128 times the file's 0\.\d MB",
        ):
            import_hdf5(source, "cn-2", "x", tmp_path / "out")

    assert resident_peak(refused) < LITTLE


@pytest.mark.promise("memory")
def test_chunks_that_share_their_bytes_do_not_count_twice(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=shape("obs")).astype("f4")
    source = write(
        tmp_path / "x.h5",
        {"obs": lambda file: file.create_dataset("obs", data=noise, chunks=(1, 51, 2, 8), compression="gzip")},
    )
    with h5py.File(source) as file:
        places = [file["obs"].id.get_chunk_info(number).byte_offset for number in range(EPISODES)]
    data, cut = source.read_bytes(), places[1]
    assert places == sorted(places)
    for offset in places:  # in the index of chunks, let each lead to the first; then the others are cut off
        data = data.replace(offset.to_bytes(8, "little"), places[0].to_bytes(8, "little"))
    source.write_bytes(data.replace(len(data).to_bytes(8, "little"), cut.to_bytes(8, "little"))[:cut])
    with pytest.raises(UserError, match=r"its fields claim \d+ of the file's \d+ bytes"):
        import_hdf5(source, "cn-2", "x", tmp_path / "out")


@pytest.mark.promise("memory")
def test_an_import_takes_what_is_recorded_and_no_padding(tmp_path: Path) -> None:
    padded = write(tmp_path / "x.h5", episodes=20_000, recorded=2)
    sizes = {name: np.dtype(TYPES.get(name, "i8")).itemsize * int(np.prod(shape(name, 1)[2:])) for name in NAMES}
    recorded, whole = (20_000 * moments * sum(sizes.values()) for moments in (2, MOMENTS))
    read: dict[str, Any] = {}
    grown = resident_peak(lambda: read.update(dataset=import_hdf5(padded, "cn-2", "x", tmp_path / "out")))
    assert read["dataset"].recorded.moments == 40_000
    assert grown < 6 * recorded + 4 * BLOCK_BYTES < whole


@pytest.mark.parametrize("shape_", [(7, 51, 2, 8), (1, 1, 1, 1), (300, 3, 5, 2), (3, 100_000, 1, 9)])
@pytest.mark.parametrize("chunks", [None, (1, 1, 1, 1), (2, 3, 1, 2), (1, 51, 1, 1)])
def test_blocks_make_up_an_array_and_are_of_whole_chunks(shape_: Any, chunks: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        size = None if chunks is None else tuple(map(min, chunks, shape_))
        array, seen = (
            file.create_dataset("x", shape_, "f4", chunks=size),
            np.zeros(shape_, np.uint8),
        )
        for block in blocks(array):
            seen[block] += 1
            assert seen[block].nbytes * 4 <= BLOCK_BYTES
            for part, step, whole in zip(block, size or (1,) * 4, shape_, strict=True):
                assert part.start % step == 0 and (part.stop % step == 0 or part.stop == whole)
        assert (seen == 1).all()


IMPORT = """
import sys
from pathlib import Path
from comad.datasets.hdf5 import import_hdf5
from comad.errors import UserError
try:
    import_hdf5(Path(sys.argv[1]), "cn-2", "x", Path(sys.argv[2]))
except UserError as error:
    print(error)
"""


@pytest.mark.promise("paths")
def test_files_that_a_recording_names_are_not_opened(tmp_path: Path) -> None:
    # A pipe that nobody writes to: opening it would wait for ever.
    pipe = tmp_path / "elsewhere"
    os.mkfifo(pipe)
    layout = h5py.VirtualLayout(shape("obs"), "f4")
    layout[:] = h5py.VirtualSource(pipe, "obs", shape("obs"))

    def growing(file: h5py.File) -> None:
        """An array as long as one in another file, which must be opened to tell how long it is."""
        whole = h5py.h5s.create_simple(shape("obs"), (h5py.h5s.UNLIMITED, *shape("obs")[1:]))
        whole.select_hyperslab((0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1), (h5py.h5s.UNLIMITED, *shape("obs")[1:]))
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_virtual(whole, os.fsencode(pipe), b"obs", whole)
        h5py.h5d.create(file.id, b"obs", h5py.h5t.IEEE_F32LE, whole, properties)

    makers: list[Callable[[h5py.File], object]] = [
        lambda file: file.__setitem__("obs", h5py.ExternalLink(pipe, "obs")),
        lambda file: file.create_dataset("obs", shape("obs"), "f4", external=[(pipe, 0, h5py.h5f.UNLIMITED)]),
        lambda file: file.create_virtual_dataset("obs", layout),
        growing,
    ]
    for number, make in enumerate(makers):
        source = write(tmp_path / f"{number}.h5", {"obs": make})
        done = subprocess.run(
            [sys.executable, "-c", IMPORT, str(source), str(tmp_path / "out")],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "obs is a link" in done.stdout or "obs is not an array in this file" in done.stdout, done.stderr
        tried()


@pytest.mark.promise("memory")
def test_a_grid_of_more_runs_than_anybody_makes_is_refused_unmade(tmp_path: Path) -> None:
    many = ", ".join(f'"a{number}"' for number in range(20_000))
    (tmp_path / "grid.toml").write_text(f"streams = [{many}]\nqualities = [{many}]\nmethods = [{many}]\nseeds = [0]\n")

    def refused() -> None:
        with pytest.raises(UserError, match="a grid of 8000000000000 runs is more than one can hold, 10000"):
            with_profile(*read_grid(tmp_path / "grid.toml"))

    assert resident_peak(refused) < LITTLE
