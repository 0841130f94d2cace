"""Runs of comad 0.1: their scores count; what needs their checkpoints is refused."""

from pathlib import Path
from typing import Any

import pytest
from placed import place

from comad.cli import main
from comad.cli.commands import departures
from comad.errors import UserError
from comad.methods import find
from comad.policy import restore
from comad.reports.results import gather
from comad.runs.folder import read_settings
from comad.runs.run import open_run
from comad.settings import identifying

LEARNER: dict[str, Any] = {
    **{"learning_rate": 5e-4, "weight_decay": 1e-3, "clip": 1.0, "discount": 0.99},
    **{"target_rate": 5e-3, "temperature": 10.0, "critic_jolt": 0.01, "recurrent": True},
}
WHY = "was made by comad 0.1, whose checkpoints hold arrays by other names"
SAID = f"{WHY}: comad 0.1 reads it; 'comad train --fresh' makes the run anew"


def older(folder: Path, name: str = "ft", **settings: Any) -> Path:
    """A finished run as comad 0.1 wrote it."""
    tasks = [{"name": "CN-2", "env": "cn-2"}, {"name": "CN-3", "env": "cn-3"}]
    written = {**settings, "learner": LEARNER}
    return place(folder, name, 0, [1.0, 1.0], tasks=tasks, settings=written)


def test_an_older_run_is_not_continued_but_may_begin_anew(tmp_path: Path) -> None:
    folder = older(tmp_path)
    (folder / "checkpoints").mkdir()
    now = {**read_settings(folder)["identity"], "settings": identifying(find("ft"))}
    with pytest.raises(UserError, match=f"^{folder} {SAID}$"), open_run(folder, {"identity": now}):
        pass
    assert read_settings(folder)["identity"]["settings"] == {"learner": LEARNER}
    with open_run(folder, {"identity": now}, fresh=True):
        assert read_settings(folder)["identity"] == now


def test_the_team_of_an_older_run_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UserError, match=f"^{tmp_path}.* {SAID}$"):
        restore(older(tmp_path))
    assert main(["evaluate", str(older(tmp_path / "third"))]) == 2
    assert capsys.readouterr().err.endswith(f"{SAID}\n")


def test_the_scores_of_an_older_run_count_as_those_of_the_same_method(tmp_path: Path) -> None:
    for name, settings in {"fs": {}, "owl": {"anchor": 500.0, "heads": None}}.items():
        older(tmp_path, name, **settings)
    older(tmp_path / "other", "ewc", strength=10.0, smallest_importance=1e-5)
    results, flaws = gather([tmp_path], departures)
    assert [result.label for result in results] == ["ewc --strength 10.0", "fs", "owl"]
    assert flaws == []
