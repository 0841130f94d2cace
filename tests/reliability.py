"""What is promised, and how often the tests tried to break it: counted by the tests themselves, told in docs/reliability.md.

A test that is marked ``@pytest.mark.promise("name")`` tries once, or as often as it calls ``tried``. With ``COMAD_RELIABILITY``
naming a file, every passed or failed test is noted there; run as a program, this puts the table into the document.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1]
DOCUMENT, NOTES = PROJECT / "docs" / "reliability.md", PROJECT / "docs" / "reliability.json"
VARIABLE = "COMAD_RELIABILITY"
BEGIN, END = "<!-- table made by tests/reliability.py -->", "<!-- end of the table -->"


@dataclass(frozen=True)
class Promise:
    """One thing a user can rely on."""

    what: str
    how: str


PROMISES = {
    "killed-run": Promise(
        "A run that is killed ends, started again, in the same bytes",
        "SIGKILL at every failpoint (before, in the middle of and after every kind of write), twice; at random moments of a real training",
    ),
    "killed-collection": Promise(
        "A collection that is killed leaves the old dataset or the new one, never a part; again, it gives the same content",
        "SIGKILL at every failpoint of writing a dataset, new and in place of another, with and without exchange in one step",
    ),
    "killed-expert": Promise(
        "An expert's training that is killed goes on in the same bits",
        "SIGKILL at every failpoint, with a stand-in for the learner; at some of them with the learner itself",
    ),
    "killed-grid": Promise(
        "A grid that is killed makes nothing twice and ends in the same results",
        "SIGKILL when a run has started and when one has ended; of the whole tree of processes",
    ),
    "full-disk": Promise(
        "A full disk stops the work with one sentence and no half file; with space again, it ends in the same bytes",
        "files that cannot grow, a tmpfs that is full, writers that fail at every write in turn",
    ),
    "read-only": Promise("A folder that cannot be written is named, nothing is lost", "folders without rights, a read-only mount"),
    "two-processes": Promise(
        "Of two processes on one run the second is refused, naming the first; two writers of one dataset leave one of them whole",
        "two real processes, interleaved writers",
    ),
    "clock": Promise("A clock that is set back changes no result", "time that runs backwards between and within sittings"),
    "damage": Promise(
        "A flipped bit or a cut anywhere is noticed; the newest whole state is used, and what was skipped is named",
        "bits and cuts at places drawn by hypothesis: checkpoints, journals, datasets, weights, cards, trainings",
    ),
    "foreign-records": Promise(
        "A record that was changed is shown as damaged by whoever reads it, never as a number",
        "scores, heads, settings and seals changed in every way, read by every reader and verb",
    ),
    "mixed-machines": Promise(
        "A run is never made half on one kind of machine and half on another without saying so; equal cores give equal bytes",
        "other cores, processors, flags and libraries; the same run by hand, pinned and in a grid",
    ),
    "not-finite": Promise(
        "A number that is not finite stops the run, naming the batch, and the last good checkpoint stays",
        "NaN in a batch, in a loss, in data",
    ),
    "power-loss": Promise(
        "A loss of power leaves what was said to be saved; the same command ends in the same bytes",
        "the disk as it can be after every call that changes files: contents and names that were "
        "not synced lost, torn, zeroed or reordered; ext4 images copied while they are mounted",
    ),
    "world-raises": Promise(
        "A world that raises stops the run, which then goes on in the same bytes", "a world that fails while it is played"
    ),
    "hostile-files": Promise(
        "No file makes a reader do anything but read it or refuse it in one sentence",
        "hypothesis on every reader, a coverage-guided fuzzer for a minute each",
    ),
    "option-ranges": Promise(
        "No number that can be set is outside its range: it is refused in one sentence, and nothing is left behind",
        "every numeric option of every verb and method, found by walking the package: below, above, NaN, infinite, 20 digits, text, empty; "
        "on the command line, in grids, in programs and in foreign settings",
    ),
    "memory": Promise("No reader takes more memory than the file can hold", "files that claim up to 10^15 numbers, measured"),
    "paths": Promise("No file leads a reader out of its folder", "names with .., absolute names, links of every kind, in every reader"),
    "no-code": Promise(
        "Nothing that is read can run", "a search of the package for pickle, eval, exec and their like; files that would run"
    ),
    "page": Promise(
        "No name can do anything on the page: it asks nobody for anything, and everything is text",
        "names that are HTML and scripts in every place, in a headless Chromium",
    ),
    "server": Promise(
        "The server answers this machine alone, shows the page and nothing else, and changes nothing",
        "other hosts, other methods, paths that lead elsewhere, other interfaces",
    ),
    "same-hashes": Promise(
        "The same settings give the same hashes on one type of machine", "every method on a tiny stream, against recorded hashes"
    ),
    "own-keys": Promise("No two draws share a key: not seeds, tasks, updates, evaluations or episodes", "all keys of small grids, counted"),
    "endurance": Promise(
        "A long run does not grow: memory, open files, threads", "50,000 updates and 200 evaluations of CN-3, measured at each evaluation"
    ),
    "clean-grid": Promise("A grid of many runs leaves no process and no temporary file", "tiny runs, 200 unless told so, counted after"),
    "linear": Promise(
        "The cost of an update, and of choosing the head for a task, grows at most linearly with heads; stage 2 can be bounded",
        "operations of an update and of a choice, from 1 to 64 heads, counted",
    ),
}


_now: list[pytest.Item] = []


def tried(times: int = 1) -> None:
    """Count one more fault or input of the test that runs, or several."""
    _now[-1].user_properties.append(("tried", times))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell the report, which may travel between processes, what the test is about."""
    _now[:] = [item]
    for mark in item.iter_markers("promise"):
        for name in mark.args:
            assert name in PROMISES, f"{item.nodeid} is about {name!r}, which is no promise"
            item.user_properties.append(("promise", name))


class Notes:
    """Writes down what tests have tried."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Any] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that was really run."""
        told = [value for name, value in report.user_properties if name == "promise"]
        if report.when != "call" or not told or report.skipped:
            return
        counts = [int(str(value)) for name, value in report.user_properties if name == "tried"]
        tries = sum(counts) if counts else 1
        self.found[report.nodeid] = {"promises": told, "tried": tries, "survived": tries if report.passed else 0}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Add what was found to what was known; what changed is replaced."""
        if hasattr(session.config, "workerinput"):
            return
        known = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.path.write_text(json.dumps(dict(sorted({**known, **self.found}.items())), indent=1) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Take notes if asked to."""
    if os.environ.get(VARIABLE):
        config.pluginmanager.register(Notes(Path(os.environ[VARIABLE])))


def table(notes: dict[str, Any]) -> str:
    """One row per promise."""
    rows = ["| promise | tried by | tests | faults or inputs | survived |", "|---|---|---|---|---|"]
    for name, promise in PROMISES.items():
        about = [note for note in notes.values() if name in note["promises"]]
        tried, survived = (sum(note[size] for note in about) for size in ("tried", "survived"))
        files = sorted({test.partition("::")[0] for test, note in notes.items() if name in note["promises"]})
        where = ", ".join(f"[{Path(file).name}](../{file})" for file in files)
        rows.append(f"| {promise.what} | {promise.how}: {where or 'not run yet'} | {len(about)} | {tried:,} | {survived:,} |")
    return "\n".join(rows)


def render(document: str, notes: dict[str, Any]) -> str:
    """The document with its table made anew."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n{table(notes)}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text(), json.loads(NOTES.read_text())))
    sys.stdout.write(f"{DOCUMENT} holds {len(PROMISES)} promises\n")
