"""A run from the command line: trained, stopped, gone on with, looked at, and used in one's own program."""

import dataclasses
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from recorded import record

import comad
from comad import envs
from comad.cli import main, train
from comad.datasets import library
from comad.envs.navigation import Navigation
from comad.envs.rollout import episode_keys
from comad.errors import UserError
from comad.policy import Policy, restore
from comad.runs import checkpoints
from comad.runs.record import read_run
from comad.runs.seal import seal_run
from comad.training import loop
from comad.types import Task

SMALL, LARGE = Navigation(2, 6, limit=9), Navigation(3, 6, limit=9)
WORLDS = [SMALL.spec.env, LARGE.spec.env]
OPTIONS = ["--quality", "random", "--updates", "6", "--evaluations", "2", "--episodes", "4", "--batch", "8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("training")
    for env in (SMALL, LARGE):
        record(library.place(env.spec.env, "random", folder / "data"), env)
    before = loop.CHUNK
    loop.CHUNK = 2
    yield folder
    loop.CHUNK = before


def command(folder: Path, *more: str) -> list[str]:
    return ["train", "comad", "--tasks", *WORLDS, *OPTIONS, "--data", str(folder / "data"), "--out", str(folder / "run"), *more]


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A finished run that was asked to stop once on its way."""
    asked: list[bool] = []

    class Impatient(train.Display):
        def show(self, event: loop.Event) -> None:
            super().show(event)
            if isinstance(event, loop.Learned) and event.updates == 8 and not asked:
                asked.append(True)
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "Display", Impatient)
        assert main(command(folder)) == 128 + signal.SIGTERM
    assert read_run(folder / "run").logs[-1]["update"] == 2
    assert main(command(folder)) == 0
    return folder / "run"


def test_a_run_tells_what_it_is_and_what_it_reached(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(folder)) == 0  # finished already: shows the same again
    out = " ".join(capsys.readouterr().out.split())
    assert "drawn play" in out and "(greedy play: P " in out and "Growth of the library" in out
    found = read_run(run)
    identity = found.settings["identity"]
    assert identity["settings"]["temperature"] == 10.0 and identity["worlds"][WORLDS[0]] == SMALL.spec.rules_hash
    assert found.settings["libraries"]["jax"] == jax.__version__ and len(found.settings["comad"]["source"]) == 16
    assert [line["update"] for line in found.logs if line["task"] == 1] == [2, 3, 5, 6]
    assert {"q_loss", "kl", "accuracy_posterior", "accuracy_prior", "gradient_actor", "weight_largest"} <= found.logs[0].keys()


def test_a_run_of_other_settings_is_refused(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(folder, "--temperature", "3.0", "--no-expand")) == 2
    assert "settings.expand is true there and false here, settings.temperature is 10.0 there and 3.0 here" in capsys.readouterr().err


def test_a_method_refuses_a_stream_before_anything_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "refused"
    assert main(["train", "hissd", "--tasks", WORLDS[0], *OPTIONS, "--data", str(folder / "data"), "--out", str(out)]) == 2
    assert "needs a stream of 2 tasks or more, and 'cn-2-6x6-9t-2r' has 1" in capsys.readouterr().err and not out.exists()


def test_heads_shows_how_the_library_grew(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["heads", str(run)]) == 0
    out = capsys.readouterr().out
    assert "opened 0" in out and f"{WORLDS[0]} by head" in out
    assert main(["heads", str(run), "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [(entry["task"], entry["when"], entry["before"]) for entry in entries] == [
        (0, "begin", 0),
        (0, "finish", 0),
        (1, "begin", 1),
        (1, "finish", 1),
    ]


def test_evaluate_and_play_let_the_trained_team_play(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["evaluate", str(run), "--episodes", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [task["world"] for task in found["tasks"]] == WORLDS
    assert main(["play", str(run), str(tmp_path / "out.gif"), "--task", WORLDS[1], "--greedy"]) == 0
    assert (tmp_path / "out.gif").stat().st_size > 1000
    assert main(["evaluate", str(run), "--random"]) == 2
    assert "who is to play?" in capsys.readouterr().err
    assert main(["evaluate", "--random", "--stream", "cn", "--greedy"]) == 2
    assert "--greedy is for trained teams" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path)]) == 2


@pytest.mark.parametrize("heads", [None, [0], ["x", "y"]])
def test_a_run_that_does_not_tell_who_played_last_is_refused(run: Path, tmp_path: Path, heads: object) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    *others, last = [json.loads(line) for line in (copy / "scores.jsonl").read_text().splitlines()]
    told = {**last, "heads": heads} if heads else {name: value for name, value in last.items() if name != "heads"}
    (copy / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (*others, told)))
    newest = max((copy / "checkpoints").glob("*.json"))
    vouched = json.loads(newest.read_text())
    vouched["journals"]["scores"] = dataclasses.asdict(checkpoints.measure(copy / "scores.jsonl"))
    newest.write_text(json.dumps(vouched))
    seal_run(copy)
    with pytest.raises(UserError, match=r"heads of . tasks, not 2|does not tell which head"):
        restore(copy)


@pytest.mark.slow
def test_a_policy_plays_teams_of_any_size(run: Path) -> None:
    policy = comad.Policy.load(run, task=WORLDS[0], seed=3)
    assert policy.head == restore(run).heads[0]
    for size in (2, 3, 4):
        env = Navigation(size, 6, limit=9)
        _, step = jax.jit(env.reset)(jax.random.key(size))
        actions = [policy.act(step.tokens, step.available) for _ in range(2)]
        assert actions[0].shape == (size,) and all(np.take_along_axis(np.asarray(step.available), actions[0][:, None], 1))
        policy.reset()
        # In a world where all see all, the state will do.
        assert policy.act(step.state, step.available).shape == (size,)
        if size < 4:
            larger = jax.jit(Navigation(size + 1, 6, limit=9).reset)(jax.random.key(0))[1]
            with pytest.raises(UserError, match=f"a team of {size} cannot go on as one of {size + 1}"):
                policy.act(larger.tokens, larger.available)
        policy.reset()
    _, starts = jax.vmap(SMALL.reset)(episode_keys(jax.random.key(0), 0, 8))
    assert policy.recognize(starts.state) in (0, 1)


def test_an_older_team_is_said_to_be_one_and_plays_as_it_was_evaluated(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    newest = max((copy / "checkpoints").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])
    trained = restore(copy)
    assert len(trained.record.scores) < len(read_run(copy).scores), "later lines tell of another team"
    assert len(trained.warnings) == 1 and f"checkpoint {newest.stem}.json could not be used" in trained.warnings[0]
    with pytest.warns(UserWarning, match="an earlier one was"):
        Policy.load(copy)
    assert main(["evaluate", str(copy), "--episodes", "2"]) == 0 and "an earlier one was" in capsys.readouterr().out


def test_worlds_of_other_kinds_are_refused_in_one_line(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["evaluate", str(run), "--stream", "lbf"], ["play", str(run), "out.gif", "--task", "lbf-bottom"]):
        assert main(words) == 2
        assert f"one team cannot play both {WORLDS[0]} and lbf-bottom" in capsys.readouterr().err
    out = folder / "mixed"
    assert main(["train", "ft", "--tasks", "cn-2", "lbf-bottom", *OPTIONS, "--out", str(out)]) == 2 and not out.exists()
    assert "cannot play both cn-2 and lbf-bottom: their " in capsys.readouterr().err


def test_a_world_is_known_by_every_name_it_has(run: Path) -> None:
    trained = restore(run)
    short = replace(trained.stream, tasks=(Task("first", "cn-2-6x6-9t"), trained.stream.tasks[1]))
    assert replace(trained, stream=short).number(WORLDS[0]) == replace(trained, stream=short).number("First") == 0


def test_a_greedy_policy_is_the_same_for_every_seed(run: Path) -> None:
    _, step = jax.jit(LARGE.reset)(jax.random.key(0))
    chosen = [Policy.load(run, greedy=True, seed=seed).act(step.tokens, step.available).tolist() for seed in (0, 1)]
    assert chosen[0] == chosen[1]


def test_what_was_not_trained_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was not trained on 'chess', but on"):
        Policy.load(run, task="chess")
    with pytest.raises(UserError, match="there is no run in"):
        Policy.load(tmp_path)
    assert envs.make(WORLDS[0]) == SMALL
