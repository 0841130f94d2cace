"""Standard streams that are closed, full or read no further: no traceback, and an exit code that tells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reliability import tried

from comad import cli
from comad.cli import main

ROOT = Path(__file__).parents[2]
EVIL = "\x1b]0;title\x07\u202e\u2066\udcff"


def comad(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of shell in which $COMAD is this program."""
    words = {
        **os.environ,
        "COMAD": f"{sys.executable} -m comad",
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    return subprocess.run(["bash", "-c", command], env=words, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("$COMAD list >&-", 0, ""),
        ("$COMAD report nowhere 2>&-", 2, ""),
        (
            "$COMAD list >/dev/full",
            2,
            "comad: standard output cannot be read or written (No space left on device)\n",
        ),
        ("$COMAD report nowhere 2>/dev/full", 2, ""),
    ],
)
def test_a_stream_that_cannot_be_written_is_no_traceback(command: str, code: int, said: str) -> None:
    done = comad(command)
    assert (done.returncode, done.stderr) == (code, said)


def test_letters_that_the_output_has_no_code_for_are_spelled_out() -> None:
    done = comad("$COMAD list", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode == 0 and done.stderr == "" and done.stdout.isascii()


def test_files_never_get_the_numbers_of_closed_streams() -> None:
    # What a library writes to number 2 would otherwise land in the first file that is opened.
    program = "from comad.cli import standard_streams as s; s.prepare(); f = open('/dev/null'); raise SystemExit(f.fileno())"
    done = subprocess.run(
        ["bash", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode > 2


@pytest.mark.promise("hostile-files")
def test_names_in_errors_do_nothing_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing:
        def run(self) -> None:
            raise PermissionError(13, "Permission denied", f"/x/{EVIL}")

    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["report", EVIL],
        ["data", "stats", "--against", EVIL],
        ["heads", EVIL],
        ["bench", "grid", EVIL],
    ):
        assert main(arguments) == 2
    monkeypatch.setattr(cli, "parse", lambda arguments: Failing())
    assert main(["anything"]) == 2
    said = capsys.readouterr()
    assert said.err.count(r"\xff") >= 5 and said.err.count("\n") == 5 and not set(said.out + said.err) & set(EVIL[:1] + EVIL[-4:])
    tried(5)
