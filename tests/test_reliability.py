"""The table of promises is the one that the tests made, with a row for every promise."""

import ast
import json
from pathlib import Path

from reliability import BEGIN, DOCUMENT, END, NOTES, PROMISES, render, table


def marked() -> set[str]:
    """Every promise that some test is marked with."""
    found: set[str] = set()
    for path in Path(__file__).parent.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "promise":
                found |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return found


def test_every_promise_is_tried_and_nothing_else() -> None:
    assert marked() == PROMISES.keys()


def test_the_document_holds_the_table_that_the_notes_make() -> None:
    document, notes = DOCUMENT.read_text(), json.loads(NOTES.read_text())
    assert render(document, notes) == document
    rows = document.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [promise.what for promise in PROMISES.values()]


def test_the_table_counts_what_was_tried_and_what_held() -> None:
    notes = {
        "tests/a.py::one": {"promises": ["clock"], "tried": 1200, "survived": 1200},
        "tests/a.py::two": {"promises": ["clock", "page"], "tried": 5, "survived": 0},
    }
    (row,) = [row for row in table(notes).splitlines() if row.startswith(f"| {PROMISES['clock'].what} ")]
    assert row.endswith(": [a.py](../tests/a.py) | 2 | 1,205 | 1,200 |")


def test_no_promise_was_broken_when_the_notes_were_taken() -> None:
    assert [name for name, note in json.loads(NOTES.read_text()).items() if note["survived"] != note["tried"]] == []
