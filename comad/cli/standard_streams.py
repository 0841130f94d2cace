"""Standard output and error, which may be closed, full, or unable to write every letter."""

import io
import os
import sys

from comad.escaping import harmless

STDOUT = "standard output"
UNHEARD, UNWRITTEN = 141, 2
"""Exit codes where standard output was closed by its reader, and where it cannot be written."""


def prepare() -> None:
    """Opens the null device for each closed stream, so that no file gets its number.

    Letters that standard output has no code for are spelled out from then on.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def complain(sentence: str) -> None:
    """Prints one line on standard error, if anybody can read it."""
    try:
        print("comad:", harmless(" ".join(sentence.split())), file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def finish(code: int) -> int:
    """Writes out what was printed; returns the exit code, which tells if that failed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would try again at its end and complain once more.
        _silence(sys.stdout)
        if isinstance(error, BrokenPipeError):  # a reader such as 'head' has seen enough
            return code or UNHEARD
        complain(f"{STDOUT} cannot be read or written ({error.strerror or error})")
        return code or UNWRITTEN
    return code


def _silence(stream: io.TextIOBase | object) -> None:
    if isinstance(stream, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
