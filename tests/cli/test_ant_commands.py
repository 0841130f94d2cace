"""Teams of moving bodies as a person handles them on the command line."""

import json
from pathlib import Path

import jax
import pytest
from ants import ant_named, playable

from comad.cli import main
from comad.cli.tasks import find_task
from comad.datasets.store import check, open_dataset
from comad.errors import UserError
from comad.experts import library
from comad.experts.library import Card
from comad.experts.sac import Sac
from comad.settings import settings

TRAINER = Sac(width=8, num_worlds=2, capacity=100)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team of the Ant that has learned nothing."""
    folder, env = tmp_path_factory.mktemp("weights"), ant_named("ant-reward-0")
    team = TRAINER.team(TRAINER.init(env, jax.random.key(0)))
    card = Card(env.spec.env, env.spec.rules, "expert", "sac", settings(TRAINER), "", 0, 0, 0.0, 1, 0.0, 0.0, 6.0, "none")
    library.put(folder, team, card)
    return folder


@playable
def test_one_team_records_every_side_of_its_world(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMAD_DATA", str(tmp_path / "data"))
    collect = ["collect", "--tasks", "ant-reward-0-5t", "ant-reward-90-obsk1-5t", "--quality", "expert", "--weights", str(weights)]
    assert main([*collect, "--episodes", "3"]) == 0
    for name in ("ant-reward-0-5t", "ant-reward-90-obsk1-5t"):
        dataset = open_dataset(tmp_path / "data" / name / "expert")
        assert check(dataset) == [] and dataset.provenance["player"] == "sac" and dataset.provenance["learned"] == "ant-reward-0"
        assert dataset.recorded.episodes == 3 and dataset.recorded.longest == 5
    written = (tmp_path / "data" / "ant-reward-0-5t" / "expert" / "manifest.json").read_text()
    again = open_dataset(tmp_path / "data" / "ant-reward-0-5t" / "expert").content
    assert main([*collect, "--episodes", "3"]) == 0  # what is there and holds is kept
    assert (tmp_path / "data" / "ant-reward-0-5t" / "expert" / "manifest.json").read_text() == written
    assert json.loads(written)["content"] == again
    capsys.readouterr()
    assert main(["data", "describe", "ant-reward-0-5t/expert"]) == 0
    said = capsys.readouterr().out
    assert "a batch is 128 steps" in said and "hip" in said
    with pytest.raises(UserError, match="no expert player for ant-dynamics-back"):
        library.get(ant_named("ant-dynamics-back"), "expert", weights)


def test_a_task_is_found_by_its_stream_and_the_end_of_its_name() -> None:
    assert find_task("ant-reward/45").env == "ant-reward-45" and find_task("cn/CN-3").env == "cn-3"
    assert find_task("ant-dynamics/Normal").env == "ant-reward-0" and find_task("ant-without-2").env == "ant-without-2"
    with pytest.raises(UserError, match="no task of ant-reward named '44'"):
        find_task("ant-reward/44")
