"""Datasets and players as a person handles them on the command line."""

import json
import re
from pathlib import Path

import jax
import pytest
from recorded import record

from comad import envs
from comad.cli import main
from comad.cli.published import MOST_CSV, read_published
from comad.datasets.store import check, open_dataset, seal
from comad.envs.navigation import published
from comad.experts import library, qmix
from comad.experts.library import SHIPPED, Card
from comad.experts.qmix import Qmix
from comad.experts.recipes import Recipe
from comad.settings import settings

TRAINER = Qmix(width=8, num_pools=1, num_worlds=4, unroll=4, capacity=16, batch=4, window=3)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An expert and a medium player of CN-2 who have learned nothing."""
    folder, env = tmp_path_factory.mktemp("weights"), published(2)
    assert env is not None
    for number, quality in enumerate(library.QUALITIES):
        agent = qmix.init(TRAINER, env, jax.random.key(number)).online.agent
        card = Card("cn-2", env.spec.rules, quality, "qmix", settings(TRAINER), "", number, 0, 0.0, 1, 0.0, 0.0, 50.0, "none")
        library.put(folder, agent, card)
    return folder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMAD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COMAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


def collect(weights: Path, *options: str) -> int:
    return main(["collect", "--tasks", "CN-2", "--weights", str(weights), "--episodes", "30", *options])


def test_collecting_makes_verified_datasets_and_keeps_those_that_hold(
    data: Path, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collect(weights) == 0
    expert = data / "cn-2" / "expert"
    assert check(open_dataset(expert)) == [] and check(open_dataset(data / "cn-2" / "medium")) == []
    assert "cn-2" in capsys.readouterr().out
    written = (expert / "manifest.json").stat().st_mtime_ns
    assert collect(weights) == 0
    assert (expert / "manifest.json").stat().st_mtime_ns == written
    content = open_dataset(expert).content

    # A damaged one is recorded again, to the same content.
    (expert / "reward.npy").write_bytes(b"nothing")
    assert collect(weights, "--quality", "expert") == 0
    assert open_dataset(expert).content == content

    # Another seed is another dataset.
    assert collect(weights, "--quality", "expert", "--seed", "1") == 0
    assert open_dataset(expert).content != content
    capsys.readouterr()
    assert main(["data", "verify"]) == 0
    assert capsys.readouterr().out.count("holds") == 2


def test_teams_of_ones_own_come_first_and_shipped_ones_play_the_rest(data: Path, weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--quality", "expert", "--weights", str(weights), "--episodes", "5"]
    assert main(["collect", "--tasks", "CN-2", "CN-3", *options]) == 0
    cards = [json.loads((folder / "expert.json").read_text())["sha256"] for folder in (weights / "cn-2", SHIPPED / "cn-3")]
    assert [open_dataset(data / world / "expert").provenance["weights"] for world in ("cn-2", "cn-3")] == cards
    # Who is missing is said before anything is recorded.
    assert main(["collect", "--tasks", "CN-4", "cn-15", *options]) == 2 and not (data / "cn-4").exists()
    assert "'comad experts train --tasks cn-15' makes one, and 'comad collect --weights" in capsys.readouterr().err


def test_describe_and_stats_explain(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = record(data / "cn-2" / "expert")
    assert main(["data", "describe", "cn-2/expert"]) == 0
    said = capsys.readouterr().out
    for part in (
        "row (1 = 6)",
        "column (1 = 6)",
        "state.agents",
        "north",
        "% of them padding",
        dataset.content[:8],
        f"{dataset.recorded.success:.4f}",
    ):
        assert part in said
    table = tmp_path / "published.csv"
    table.write_text("stream,task,quality,avg_length,avg_return,avg_win_rate\nCN,CN-2,expert,3.11,1.00,\n")
    assert main(["data", "stats"]) == 0 and main(["data", "list"]) == 0
    assert main(["data", "stats", "--against", str(table)]) == 0
    assert f"{dataset.recorded.length + 1:.2f}" in capsys.readouterr().out


def test_published_tasks_are_found_under_the_names_that_tables_give_them(tmp_path: Path) -> None:
    rows = ["CN,CN-2", "Reward,Reward-45", "Dynamics,Dynamics-Front", "Protoss,Protoss-10v11", "Marines,5m_vs_6m", "Chess,Chess-1"]
    (tmp_path / "table.csv").write_text("stream,task,quality,avg_length,avg_return\n" + "".join(f"{row},expert,1,1\n" for row in rows))
    worlds = [world for world, _ in read_published(tmp_path / "table.csv")]
    assert worlds == ["cn-2", "ant-reward-45", "ant-dynamics-front", "protoss_10v11", "5m_vs_6m"]


HEADER = b"stream,task,quality,avg_length,avg_return\n"
TABLES = {
    "an empty file": (b"", r"has no column 'stream'; a published table has the columns stream, task, quality, avg_length, avg_return"),
    "a header only": (HEADER, "has no row below its header"),
    "a column missing": (b"stream,task,quality,avg_return\nCN,CN-2,expert,1\n", "has no column 'avg_length'"),
    "blank lines": (b"\n\n\n", "has no column 'stream'"),
    "a short row": (HEADER + b"CN,CN-2,expert,1,1\nCN,CN-2\n", "row 2 ends before its column 'quality'"),
    "a giant field": (HEADER + b"CN,CN-2," + b"x" * 200_000 + b",1,1\n", r"cannot be read as a table \(field larger than field limit"),
    "an open quotation": (HEADER + b'"CN,CN-2,expert,1,1\n', r"cannot be read as a table \("),
    "no text": (b"\xff\xfe\x00", r"cannot be read as a table \('utf-8' codec"),
    "much": (b" " * (MOST_CSV + 1), r"is \d+ bytes long"),
    "a folder": (None, "is a folder, not a file"),
}


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_another_kind_is_one_clean_sentence(name: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(data / "cn-2" / "expert")
    written, message = TABLES[name]
    if written is None:
        (tmp_path / "table.csv").mkdir()
    else:
        (tmp_path / "table.csv").write_bytes(written)
    assert main(["data", "stats", "--against", "table.csv"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("comad: table.csv: ") and re.search(message, said) and said.count("\n") == 1 and "Error" not in said


def test_a_table_may_begin_with_a_byte_order_mark_and_have_more_columns(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"\xef\xbb\xbf" + HEADER.strip() + b',"more, of it"\r\nCN,CN-2,expert,1,2,=3\r\n')
    assert read_published(tmp_path / "table.csv")["cn-2", "expert"]["avg_return"] == "2"


def test_verify_finds_damage_and_twins(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(data / "cn-2" / "expert")
    record(data / "cn-2" / "medium")
    assert main(["data", "verify"]) == 2
    captured = capsys.readouterr()
    assert "says the same as" in captured.out and "1 of 2 datasets do not hold" in captured.err
    file = data / "cn-2" / "medium" / "actions.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    assert main(["data", "verify", "cn-2/medium"]) == 2
    assert "actions.npy: its bytes are not those that were written" in capsys.readouterr().out


def test_verify_names_how_the_world_has_changed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = record(data / "cn-2" / "expert")
    path = dataset.path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"]["rules"] = manifest["spec"]["rules"].replace('"version": 1', '"version": 0')
    path.write_text(json.dumps(manifest | {"seal": seal(manifest)}))
    assert main(["data", "verify"]) == 2
    assert "recorded in another world than cn-2-6x6-9t-2r: version 0 instead of 1" in capsys.readouterr().out


def test_export_and_import_go_round(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = published(2)
    assert env is not None
    dataset = record(data / "cn-2" / "expert", env)
    assert main(["data", "export", "cn-2/expert", str(tmp_path / "out.h5")]) == 0
    assert main(["data", "import", str(tmp_path / "out.h5"), "--task", "cn-2", "--quality", "back"]) == 0
    back = open_dataset(data / "cn-2" / "back")
    assert back.content == dataset.content and back.provenance["kind"] == "imported"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("collect", "nothing to collect"),
        ("collect cm", "there is no stream named 'cm'"),
        ("collect --tasks cn-2 --episodes 0", "--episodes must be a whole number x with 1 <= x <= 1000000, not 0"),
        ("collect --tasks cn-15", "there is no expert player for cn-15"),
        ("data describe cn-2/expert", "no dataset 'cn-2/expert'"),
        ("data verify", "no datasets in"),
        ("data import nowhere.h5 --task cn-2", "nowhere.h5"),
        ("data import nowhere.h5 --task cn-2 --quality ../x", "must be a plain name"),
        ("data import nowhere.h5 --task cn-2 --quality=", "must be a plain name"),
        ("train ft --stream cn --quality .", "must be a plain name"),
        ("data stats --against nowhere.csv", "nowhere.csv"),
        ("experts train", "give a stream"),
        ("experts train cn --steps 0", "--steps must be a whole number x with 1 <= x <= 1000000000, not 0"),
        ("experts train --tasks cn-2 --label ../b", "--label cannot be '../b'"),
        ("experts show --weights nowhere", "no weights here"),
        ("experts curves nowhere", "nowhere: no training has been evaluated here"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_two(data: Path, command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not data.exists()


@pytest.mark.slow
def test_training_an_expert_writes_its_card(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comad.cli.experts.recipe", lambda spec, related: Recipe(TRAINER))
    # A field so small that any team succeeds now and then.
    assert main(["experts", "train", "--tasks", "cn-2-5x5", "--steps", "600", "--weights", "w"]) == 0
    card = json.loads((tmp_path / "w" / "cn-2-5x5-50t-2r" / "expert.json").read_text())
    assert card["episodes"] == 2000 and card["command"] == "comad experts train --tasks cn-2-5x5-50t-2r --seed 0 --steps 600"
    assert main(["experts", "show", "--weights", "w"]) == 0
    assert "cn-2-5x5-50t-2r" in capsys.readouterr().out
    assert main(["experts", "train", "--tasks", "cn-2-5x5", "--steps", "600", "--weights", "w", "--label", "b"]) == 0
    again = json.loads((tmp_path / "w" / "cn-2-5x5-50t-2r" / "expert-b.json").read_text())
    assert again["command"] == f"{card['command']} --label b" and again["sha256"] == card["sha256"]
    assert library.get(envs.make("cn-2-5x5"), "expert-b", Path("w"))[1].quality == "expert-b"
