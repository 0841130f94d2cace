"""How an array of an HDF5 file is stored: checked first, then read in blocks of bounded size.

HDF5 unpacks a chunk to whatever its gzip stream holds, and takes a chunk to be as large as its
file says, however small the array is. So every chunk is first unpacked here, up to the size that
it must have and no further.
"""

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence

import h5py
import numpy as np
from h5py import h5z

from comad.errors import UserError

MOST_NUMBERS = 2_000_000_000
"""Numbers in one field that are still believed."""
DENSEST = 1032
"""Bytes that one byte of a gzip stream can stand for at most."""
MOST_CHUNK, SMALL_CHUNK = 1 << 26, 1 << 20
"""Most bytes of a chunk, and of one that is larger than its array."""
BLOCK_BYTES = 1 << 24
"""Bytes that are unpacked at once, unless one chunk is larger."""
DENSEST_MOMENTS, FEW_MOMENTS = 128, 1 << 26
"""Bytes of recorded moments per byte of a file that are still believed, beyond the first few.

Files of ODIS have 7 to 16.
"""
CHECKSUM = 4
"""Bytes of a Fletcher-32 checksum."""
READ_FILTERS = (h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32)


def check_stored(where: str, arrays: Mapping[str, h5py.Dataset], size: int) -> None:
    """Refuses arrays that claim more than a file of this size holds, or that are not all there."""
    for name, array in arrays.items():
        numbers, stored = math.prod(array.shape), array.id.get_storage_size()
        if numbers > MOST_NUMBERS or numbers * array.dtype.itemsize > DENSEST * min(stored, size):
            raise UserError(f"{where}: {name} claims {numbers} numbers, more than the file can hold; get a fresh copy")
    # Chunks of the same place in the file would otherwise count as often as they are named.
    if (claimed := sum(array.id.get_storage_size() for array in arrays.values())) > size:
        said = f"its fields claim {claimed} of the file's {size} bytes"
        raise UserError(f"{where}: {said}; get a fresh copy")
    for name, array in arrays.items():
        _check_packing(f"{where}: {name}", array)
        if not _complete(array):
            said = f"{name} is not all there, or is not as large as it says"
            raise UserError(f"{where}: {said}; get a fresh copy")


def check_density(where: str, moments: int, arrays: Mapping[str, h5py.Dataset], size: int) -> None:
    """Refuses so many recorded moments that no recording in a file of this size holds them."""
    sizes = (math.prod(array.shape[2:]) * array.dtype.itemsize for array in arrays.values())
    bytes_read = moments * sum(sizes)
    if bytes_read > max(FEW_MOMENTS, DENSEST_MOMENTS * size):
        ratio = f"{DENSEST_MOMENTS} times the file's {size / 1e6:.1f} MB"
        said = f"its {moments} moments unpack to {bytes_read / 1e6:.0f} MB, over {ratio}"
        raise UserError(f"{where}: {said}; import it in smaller parts")


def blocks(array: h5py.Dataset) -> Iterator[tuple[slice, ...]]:
    """Yields parts that make up an array, of whole chunks, so that each is unpacked once."""
    chunk = array.chunks or (1,) * array.ndim
    steps = list(chunk)
    for axis in reversed(range(array.ndim)):
        room = BLOCK_BYTES // (math.prod(steps) * array.dtype.itemsize)
        steps[axis] = min(chunk[axis] * max(1, room), array.shape[axis])
    for corner in _corners(array.shape, steps):
        axes = zip(corner, steps, array.shape, strict=True)
        yield tuple(slice(first, min(first + step, size)) for first, step, size in axes)


def read_filled(array: h5py.Dataset) -> np.ndarray:
    """Returns ``[episode, time]``: 0 or 1 as it is written, 2 where anything else is written."""
    found = np.empty(array.shape[:2], np.uint8)
    for block in blocks(array):
        values = array[block][..., 0]
        found[block[:2]] = np.where(values == 0, 0, np.where(values == 1, 1, 2))
    return found


def read_moments(array: h5py.Dataset, filled: np.ndarray) -> np.ndarray:
    """Returns the recorded moments of a field, end to end, floats in single precision."""
    lengths = filled.sum(1)
    starts = np.cumsum(lengths) - lengths
    dtype = np.dtype(np.float32) if array.dtype.kind == "f" else array.dtype
    moments = np.empty((int(lengths.sum()), *array.shape[2:]), dtype)
    for episodes, times, *rest in blocks(array):
        recorded = filled[episodes, times]
        if recorded.any():
            episode, time = np.nonzero(recorded)
            places = starts[episodes][episode] + times.start + time
            with np.errstate(over="ignore"):
                moments[(places, *rest)] = array[(episodes, times, *rest)][recorded]
    return moments


def _check_packing(where: str, array: h5py.Dataset) -> None:
    """Refuses chunks that are packed by other means than gzip, or far larger than their array."""
    filters = _filters(array)
    if len(set(filters)) < len(filters) or not set(filters) <= set(READ_FILTERS):
        said = "is packed with other filters than gzip"
        raise UserError(f"{where} {said}; unpack it with 'h5repack -f NONE' first")
    chunk = _chunk_bytes(array)
    most = min(MOST_CHUNK, max(SMALL_CHUNK, math.prod(array.shape) * array.dtype.itemsize))
    if chunk > most:
        said = f"is stored in chunks of {chunk} bytes, and at most {most} are read"
        raise UserError(f"{where} {said}; write it in smaller chunks")


def _complete(array: h5py.Dataset) -> bool:
    """Whether every part is stored in the size it must have; HDF5 reads zeros where it is not."""
    if array.chunks is None:
        return bool(array.id.get_storage_size() >= math.prod(array.shape) * array.dtype.itemsize)
    counts = (-(-size // step) for size, step in zip(array.shape, array.chunks, strict=True))
    if array.id.get_num_chunks() != math.prod(counts):
        return False
    filters, size = _filters(array), _chunk_bytes(array)
    stored = (array.id.read_direct_chunk(corner) for corner in _corners(array.shape, array.chunks))
    return all(_fits(mask, data, filters, size) for mask, data in stored)


def _fits(mask: int, data: bytes, filters: Sequence[int], size: int) -> bool:
    """Whether a chunk unpacks to exactly its size; filters whose bits are in its mask were left out."""
    applied = [number for place, number in enumerate(filters) if not mask >> place & 1]
    if h5z.FILTER_DEFLATE not in applied:
        wanted = size + CHECKSUM * (h5z.FILTER_FLETCHER32 in applied)
        return not mask >> len(filters) and len(data) == wanted
    last = applied.index(h5z.FILTER_DEFLATE)
    packed = data[:-CHECKSUM] if h5z.FILTER_FLETCHER32 in applied[last:] else data
    wanted = size + CHECKSUM * (h5z.FILTER_FLETCHER32 in applied[:last])
    stream = zlib.decompressobj()
    try:
        unpacked = len(stream.decompress(packed, wanted + 1))
    except zlib.error:
        return False
    return not mask >> len(filters) and stream.eof and unpacked == wanted


def _filters(array: h5py.Dataset) -> list[int]:
    """Returns the numbers of the filters that pack an array, the first that was applied first."""
    properties = array.id.get_create_plist()
    return [properties.get_filter(place)[0] for place in range(properties.get_nfilters())]


def _chunk_bytes(array: h5py.Dataset) -> int:
    return math.prod(array.chunks or ()) * int(array.dtype.itemsize)


def _corners(shape: Sequence[int], steps: Sequence[int]) -> Iterator[tuple[int, ...]]:
    axes = zip(shape, steps, strict=True)
    return itertools.product(*(range(0, size, step) for size, step in axes))
