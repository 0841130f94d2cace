"""Nothing in the package runs what it reads."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "comad"
FORBIDDEN = re.compile(r"\b(pickle|cloudpickle|dill|marshal|shelve)\b|\beval\(|\bexec\(|yaml\.load|allow_pickle=True|__import__")


@pytest.mark.promise("no-code")
def test_no_reader_can_execute_data() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_the_search_finds_what_it_looks_for() -> None:
    for line in ("import pickle", "eval(text)", "np.load(path, allow_pickle=True)", "yaml.load(file)"):
        assert FORBIDDEN.search(line)
    assert not FORBIDDEN.search("value = evaluate(team); np.load(path, allow_pickle=False)")
