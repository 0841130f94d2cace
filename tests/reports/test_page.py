"""The page stands alone, says what the runs say, and cannot be broken by a name."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from placed import command, place

from comad.reports.page import build, collect
from comad.reports.results import Flaw, Result, gather
from comad.runs.seal import seal_run

NODE = shutil.which("node")


def page_of(results: list[Result], flaws: list[Flaw]) -> str:
    return build(collect(results, flaws, command))


def embedded(page: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])  # type: ignore[index]


def test_the_page_holds_numbers_curves_and_the_matrix(tmp_path: Path) -> None:
    place(tmp_path, "comad", 0, [1.0, 1.0])
    path = place(tmp_path, "comad", 1, [0.6, 0.8])
    heads = {"task": 0, "name": "first", "active": 0, "before": 0, "used": 1, "scores": [0.0], "own_score": [2.0], "noise_score": [-3.0]}
    (path.parent / "comad-seed0" / "heads.jsonl").write_text(
        "".join(json.dumps({**heads, "when": when}) + "\n" for when in ("begin", "finish"))
    )
    seal_run(path.parent / "comad-seed0")
    page = page_of(*gather([tmp_path]))
    (result,) = embedded(page)["results"]
    shown = result["modes"][result["usual"]]
    assert shown["metrics"]["P"] == {"mean": 85.0, "std": 15.0, "low": 0.0, "high": 100.0} and shown["rank"] is None
    assert shown["metrics"]["late P"] == shown["metrics"]["P"]  # of one evaluation the last quarter is that one
    assert shown["matrix"] == [[1.0, 0.0], [0.8, 0.9]]
    # Over the tasks seen so far: nothing, the first, the first with an unlearned second, both.
    assert shown["curves"]["seen"]["mean"] == [0.0, 1.0, 0.5, 0.85] and shown["curves"]["tasks"][1]["std"] == [0.0, 0.0, 0.0, 0.1]
    assert result["published"]["P"] == [99.26, 0.08] and result["seeds"] == [0, 1]
    assert result["heads"] == [{"task": "first", "head": 0, "reused": False, "used": 1, "scores": [], "own": 2.0, "noise": -3.0, "P": 50.0}]


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_the_page_writes_numbers_as_python_does() -> None:
    """Tries whatever 32 episodes of five tasks can add up to, with rounding errors and without."""
    values = [*(points * 0.625 for points in range(161)), -21.25, -0.04, 84.95, 78.35]
    values += [100 * (points / 160) for points in range(161)]
    source = (files("comad.reports") / "page" / "base.js").read_text()
    program = re.search(r"^const number = .*?;(?=\nconst )", source, re.M | re.S)
    assert program
    written = f"{json.dumps(values)}.map((value) => number(value))"
    script = f"{program[0]} console.log(JSON.stringify({written}));"
    done = subprocess.run([str(NODE), "-e", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [f"{round(value, 6):.1f}" for value in values]
    assert {"21.2", "28.8", "-21.2"} <= set(json.loads(done.stdout))


@pytest.mark.promise("page")
def test_the_page_fetches_nothing_and_names_cannot_end_its_script(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    place(tmp_path, "comad", 0, [1.0, 1.0], tasks=[{"name": evil}, {"name": "second"}])
    results, _ = gather([tmp_path])
    page = page_of(results, [Flaw(tmp_path, f"broken {evil}")])
    assert evil not in page and page.count("<script") == 2
    assert embedded(page)["results"][0]["tasks"][0] == evil and embedded(page)["flaws"] == [f"broken {evil}"]
    links = set(re.findall(r"https?://[^\s\"'`)]+", page)) - {"http://www.w3.org/2000/svg"}
    assert links == set() and not re.search(r"\bfetch\(|XMLHttpRequest|@import|url\(", page)


def test_a_damaged_portrait_is_named_and_its_run_still_counts(tmp_path: Path) -> None:
    path = place(tmp_path, "comad", 0, [1.0, 1.0])
    for wrong in ("{broken", "[]", '{"replays": []}'):
        (path / "portrait.json").write_text(wrong)
        results, flaws = gather([tmp_path])
        assert len(results) == 1 and "portrait.json" in flaws[0].why
        assert embedded(page_of(results, flaws))["results"][0]["portrait"] is None
