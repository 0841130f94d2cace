"""The command line as a person meets it: what it prints, which files it leaves, how it refuses."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from PIL import Image
from PIL.GifImagePlugin import GifImageFile

import comad
from comad import envs, streams
from comad.cli import VERBS, evaluate, main
from comad.cli.evaluate import Evaluate
from comad.cli.play import Play
from comad.cli.tasks import choose, find_stream, find_task
from comad.cli.teams import Source
from comad.cli.terminal import followed, progress
from comad.envs.episodes import watch_first_success
from comad.envs.navigation import Navigation
from comad.envs.rollout import Outcome, RandomPlayer, episode_keys, rollout
from comad.errors import UserError
from comad.types import Task


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = jax.config.values["jax_compilation_cache_dir"]
    yield tmp_path_factory.mktemp("cache")
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


@pytest.fixture(autouse=True)
def _away_from_home(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMAD_CACHE", str(cache))
    monkeypatch.setattr("comad.cli.terminal.PLAIN_SECONDS", 3600.0)
    monkeypatch.chdir(tmp_path)


WRONG = {
    "play cn-2 out.gif": "who is to play? give either the folder of a run, or --random, or --quality",
    "play --random cn-22 out.gif": "there is no world named 'cn-22'; did you mean cn-2",
    "play --random chess out.gif": "there is no world named 'chess'; known: 10m, ",
    "play --random cn-9-2x2 out.gif": "cn-9-2x2: needs 1 to 2 agents",
    "play --random BotomLeft out.gif": "did you mean lbf-bottomleft",
    "play --random cn-2 out.gif --seed -3": "--seed must be a whole number x with 0 <= x <= 4294967295, not -3",
    "play --random cn-2 out.gif --seed 4294967296": "--seed must be a whole number x with 0 <= x <= 4294967295, not 4294967296",
    "play --random cn-2 out.png": "the name must end in .gif",
    "play --random cn-2 .": "cannot write .: it is a folder",
    "play --random cn-2 file/out.gif --seed 1": "cannot write file/out.gif: file is not a folder",
    "evaluate --stream cn": "who is to play?",
    "evaluate --random": "give a stream, such as cn",
    "evaluate --random --stream cm": "there is no stream named 'cm'; did you mean cn?",
    "evaluate --random --stream cn --tasks": "stream 'cn' has no task",
    "evaluate --random --tasks": "has no task",
    "evaluate --random --stream cn --tasks cn-2 cn-22": "there is no world named 'cn-22'",
    "evaluate --random --stream cn --seed -3": "--seed must be a whole number x with 0 <= x <= 4294967295, not -3",
    "evaluate --random --stream cn --episodes 0": "--episodes must be a whole number x with 1 <= x <= 1000000, not 0",
    "play nowhere out.gif --random --greedy": "--greedy is for trained teams",
    "evaluate nowhere": "there is no run in nowhere",
    "heads nowhere": "there is no run in nowhere",
    "train comad": "give a stream, such as cn",
    "train comad --stream cm": "there is no stream named 'cm'; did you mean cn?",
    "train comad --stream cn --data nowhere": "'comad collect cn --quality expert --data nowhere' makes it",
    "train comad --stream cn --updates 0": "--updates must be a whole number x with 1 <= x <= 10000000, not 0",
    "train comad --stream cn --updates 10": "20 evaluations do not fit into 10 updates",
    "train comad --stream cn --seed -1": "--seed must be a whole number x with 0 <= x <= 4294967295, not -1",
    "bench step --shapes 3q --cores 1": "there is no shape named '3q'",
    "bench step --seconds 0": "--seconds must be a number x with 0 < x <= 86400, not 0.0",
    "bench step --cores": "nothing to measure",
    "bench step --methods cmad --shapes lbf --cores 1": "there is no method named 'cmad'; did you mean comad",
    "bench grid": "a grid without streams holds no run",
    "bench grid nowhere.toml": "there is no file nowhere.toml",
    "bench grid --streams cm": "there is no stream named 'cm'; did you mean cn?",
    "bench grid --streams cn --methods fs ftt": "there is no method named 'ftt'; did you mean ft",
    "bench grid --streams cn --seeds 0 -1": "--seeds must be whole numbers x with 0 <= x <= 4294967295, not -1",
    "bench grid --streams cn --updates 0": "--updates must be a whole number x with 1 <= x <= 10000000, not 0",
    "bench grid --streams cn --at-once 0": "--at-once must be a whole number x with 1 <= x <= 1024, not 0",
    "bench envs --num-envs 0": "--num-envs must be whole numbers x with 1 <= x <= 1000000, not 0",
    "bench envs --num-envs": "nothing to measure",
    "bench envs --worlds": "nothing to measure",
    "bench envs --worlds cn-22": "there is no world named 'cn-22'",
    "bench envs --seconds 0": "--seconds must be a number x with 0 < x <= 86400, not 0.0",
    "bench envs --seconds nan": "--seconds must be a number x with 0 < x <= 86400, not nan",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_input_gets_one_line_and_code_2(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").touch()
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("comad: ")
    assert err.count("\n") == 1
    assert WRONG[arguments] in err
    assert [path.name for path in Path().iterdir()] == ["file"]


UNPARSABLE = ["", "dance", "play --random", "play --random cn-2 out.gif --seed", "list --loud", "bench weather", "--version --loud"]


@pytest.mark.parametrize("arguments", UNPARSABLE)
def test_what_cannot_be_parsed_is_explained_with_code_2(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--help" in err
    assert "Traceback" not in err


def test_an_interruption_is_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(verb: Play) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Play, "run", interrupt)
    assert main(["play", "cn-2", "out.gif"]) == 130
    assert capsys.readouterr() == ("", "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"comad {comad.__version__}\n"


def test_arguments_come_from_the_process_by_default(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["comad", "--version"])
    assert main() == 0
    assert comad.__version__ in capsys.readouterr().out


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [verb for verb in VERBS if f"• {verb} " not in out] == []
    assert "--version" in out


OPTIONS = {
    "list": [],
    "doctor": ["--json"],
    "demo": ["--stream", "--updates", "--episodes", "--data", "--out"],
    "play": ["RUN|TASK", "OUT.gif", "--random", "--task", "--greedy", "--seed", "--won"],
    "evaluate": ["--random", "--stream", "--tasks", "--seed", "--episodes", "--json"],
    "train": ["comad"],
    "heads": ["PATH", "--held-out", "--samples", "--json"],
    "portrait": ["RUN", "--data"],
    "report": ["RUNS", "--out", "--play", "--no-figures"],
    "watch": ["RUNS", "--port"],
    "bench": ["grid", "envs", "step"],
    "bench grid": ["FILE", "--profile", "--streams", "--methods", "--seeds", "--at-once", "--ray", "--track", "--out"],
    "bench envs": ["--num-envs", "--worlds", "--seconds", "--json"],
    "bench step": ["--shapes", "--cores", "--seconds", "--data", "--json"],
}


@pytest.mark.parametrize("verb", OPTIONS)
def test_help_of_a_verb_explains_its_options(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    if verb in VERBS:
        assert " ".join((VERBS[verb].__doc__ or "missing").split()) in words
    assert [option for option in OPTIONS[verb] if option not in words] == []


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)  # before there is anything to be read
    try:
        done = subprocess.run([sys.executable, "-m", "comad", "list"], stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert done.stderr == b""
    assert done.returncode in (1, 141)  # 1 is what rich says of it


def test_list_shows_all_worlds_and_streams(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {cells[1]: cells for line in lines if (cells := line.replace("│", " │ ").split("│")) and len(cells) > 4}
    rows = {name.strip(): [cell.strip() for cell in cells[1:-1]] for name, cells in rows.items()}
    # Methods have two columns; the tasks of a long stream go on below it, in rows without a name.
    assert set(rows) - {""} == {*envs.names(), *streams.STREAMS}
    assert rows["cn-15"] == ["cn-15", "15", "15", "5", "80", "1", envs.make("cn-15").spec.rules_hash]
    assert rows["lbf"] == ["lbf", "BottomLeft Bottom BottomRight Right TopRight", "20000", "8.0", "return"]
    assert any("cn-4-9x9" in line for line in lines)
    assert any("lbf-8x8-2p-1f" in line for line in lines)


def test_doctor_tells_versions_and_what_is_missing(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["jax"] == jax.__version__
    assert found["versions"]["comad"] == comad.__version__
    assert found["devices"] == [str(device) for device in jax.devices()]
    assert found["cores"] >= 1
    assert found["cache"] == {"folder": str(cache), "used": True}
    assert found["optional"]["lbforaging"] == {"found": True, "get": "pip install 'comad[dev]'"}
    assert found["optional"]["mujoco"]["get"] == "pip install 'comad[ant]'"
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert jax.__version__ in out
    assert [name for name in found["optional"] if name not in out] == []


def test_doctor_says_when_the_cache_is_not_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("COMAD_CACHE", str(tmp_path / "open"))
    assert main(["doctor"]) == 0
    assert "not used" in capsys.readouterr().out


def single_episode(seed: int) -> Outcome:
    env = envs.make("cn-2")
    return rollout(env, RandomPlayer(env.spec), episode_keys(jax.random.key(seed), 0, 1))[0]


@pytest.mark.parametrize(("success", "ending"), [(True, "success"), (False, "no success")])
def test_play_writes_the_whole_episode(success: bool, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    seed = next(seed for seed in range(100) if bool(single_episode(seed).success[0]) == success)
    length, total = int(single_episode(seed).length[0]), float(single_episode(seed).total[0])
    assert main(["play", "--random", "cn-2", "new/out.gif", "--seed", str(seed)]) == 0
    assert capsys.readouterr() == (f"wrote new/out.gif: {length} steps, return {total:.2f}, {ending}\n", "")
    with Image.open("new/out.gif") as gif:
        assert isinstance(gif, GifImageFile)
        assert gif.n_frames == length + 1


def test_a_won_episode_is_the_first_one_that_the_world_calls_a_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = [bool(single_episode(seed).success[0]) for seed in range(100)]
    begin = next(seed for seed in range(100) if not ended[seed] and not ended[seed + 1])
    won = ended.index(True, begin)
    assert main(["play", "--random", "cn-2", "won.gif", "--seed", str(begin), "--won"]) == 0
    wrote, chosen = capsys.readouterr().out.splitlines()
    assert wrote.endswith(", return 1.00, success") and won >= begin + 2
    assert chosen == f"chosen: seed {won}, the first won episode of {won - begin + 1} played"
    assert main(["play", "--random", "cn-2", "same.gif", "--seed", str(won)]) == 0
    assert Path("won.gif").read_bytes() == Path("same.gif").read_bytes()


def test_in_the_end_of_a_won_episode_every_landmark_has_an_agent_of_its_own() -> None:
    env = envs.make("cn-2")
    assert isinstance(env, Navigation)
    found = watch_first_success(env, RandomPlayer(env.spec), range(100))
    assert found
    seed, episode = found
    agents = np.asarray(episode.worlds.agents)[episode.length]
    landmarks = np.asarray(episode.worlds.landmarks)[episode.length]
    in_reach = np.abs(agents[:, None] - landmarks[None]).max(-1) <= env.reach
    assert in_reach.diagonal().all() or in_reach[:, ::-1].diagonal().all()
    assert watch_first_success(env, RandomPlayer(env.spec), range(seed)) is None


def test_where_no_episode_is_won_that_is_said_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = 4294967290  # the largest seed is five more
    words = f"play --random cn-4-9x9-1t out.gif --won --seed {first}"
    assert main(words.split()) == 2 and list(Path().iterdir()) == []
    said = f"none of 6 episodes on cn-4-9x9-1t-2r from --seed {first} on was won; try another seed"
    assert said in capsys.readouterr().err


def test_play_repeats_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for out, seed, task in (("a.gif", "1", "CN-2"), ("b.gif", "1", "cn-2"), ("c.gif", "6", "cn-2")):
        assert main(["play", "--random", task, out, "--seed", seed]) == 0
    assert Path("a.gif").read_bytes() == Path("b.gif").read_bytes() != Path("c.gif").read_bytes()
    assert "wrote c.gif" in capsys.readouterr().out


def test_worlds_whose_returns_have_other_scales_are_judged_by_success() -> None:
    assert choose(None, ["cn-2", "lbf-bottom"]).metric == "return"
    assert choose(None, ["cn-2", "3m"]).metric == choose("marines", ["4m"]).metric == "success"


def test_tasks_go_by_their_name_in_a_stream_or_by_their_world() -> None:
    assert find_task("bottomleft") == Task("BottomLeft", "lbf-bottomleft")
    assert find_task("right").env == "lbf-right" and choose("ant-dynamics", ["right"]).tasks[0].env == "ant-dynamics-right"
    assert find_task("cn-4-9x9") == Task("cn-4-9x9", "cn-4-9x9")


def test_worlds_with_commas_between_are_a_stream() -> None:
    stream = find_stream("cn-5,3m,cn-2")
    assert (stream.name, [task.env for task in stream.tasks], stream.metric) == ("cn-5,3m,cn-2", ["cn-5", "3m", "cn-2"], "success")
    assert find_stream("cn-5,cn-3").threshold == streams.STREAMS["cn"].threshold != find_stream("3m,4m").threshold
    assert find_stream("cn:CN-3,CN-2").tasks == (Task("CN-3", "cn-3"), Task("CN-2", "cn-2")) and choose("cn", ["CN-3"]).name == "cn:CN-3"
    assert find_stream("cn-2").tasks == (Task("cn-2", "cn-2"),) and find_stream("cn") is streams.STREAMS["cn"]
    with pytest.raises(UserError, match=r"stream named 'nc'.*cn"):
        find_stream("nc")
    with pytest.raises(UserError, match="bogus"):
        find_stream("cn-2,bogus")


def test_evaluate_gives_the_numbers_of_the_episodes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "--random", "--stream", "cn", "--tasks", "lbf-5x5-2p-2f", "CN-2", "--seed", "5", "--episodes", "8"]
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert [(task["task"], task["world"]) for task in found["tasks"]] == [("lbf-5x5-2p-2f",) * 2, ("CN-2", "cn-2")]
    for task in found["tasks"]:
        env = envs.make(task["world"])
        outcome = rollout(env, RandomPlayer(env.spec), episode_keys(jax.random.key(5), 0, 8))[0]
        assert task["mean_return"] == np.mean(outcome.total)
        assert task["success_rate"] == np.mean(outcome.success)
        assert task["mean_length"] == np.mean(outcome.length)
        assert task["score"] == 100 * task["mean_return"]
    assert found["mean_score"] == pytest.approx(np.mean([task["score"] for task in found["tasks"]]))
    assert (found["stream"], found["metric"], found["seed"], found["episodes"]) == ("cn:lbf-5x5-2p-2f,CN-2", "return", 5, 8)
    assert main(arguments) == 0
    table = capsys.readouterr().out
    assert f"{found['tasks'][1]['mean_length']:.1f}" in table
    assert f"{found['mean_score']:.1f}" in table


def test_many_episodes_are_played_in_rounds_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    task, settings, counts = Task("CN-2", "cn-2"), Evaluate(episodes=8), list[int]()
    at_once = evaluate.play(task, envs.make("cn-2"), settings, Source(), "return", counts.append)
    monkeypatch.setattr(evaluate, "EPISODES_AT_ONCE", 3)
    assert evaluate.play(task, envs.make("cn-2"), settings, Source(), "return", counts.append) == at_once
    assert counts == [8, 3, 3, 2]


def test_the_metric_of_the_stream_decides_the_score() -> None:
    task, settings = Task("two foods", "lbf-5x5-2p-2f"), Evaluate(episodes=8)
    by_return, by_success = (
        evaluate.play(task, envs.make(task.env), settings, Source(), metric, lambda count: None) for metric in ("return", "success")
    )
    assert by_return.score == pytest.approx(100 * by_return.mean_return)
    assert by_success.score == pytest.approx(100 * by_success.success_rate)
    assert by_return.score > by_success.score


def test_bench_measures_worlds(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "envs", "--worlds", "cn-2", "--num-envs", "1", "--seconds", "0.001"]
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert [(row["implementation"], row["num_envs"]) for row in found["rows"]] == [("plain Python", 1), ("comad", 1)]
    assert found["notes"] == []
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "plain Python" in out
    assert "steps/second" in out


def test_progress_is_a_bar_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    list(followed(range(3), "counting"))
    out, err = capsys.readouterr()
    assert out == "" and "counting" in err


class Log(io.StringIO):
    """A log to which another thread writes, and in which lines can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Condition()

    def write(self, text: str) -> int:
        with self.written:
            self.written.notify_all()
            return super().write(text)

    def wait_for(self, *parts: str) -> None:
        """Waits until lines hold these parts, each as often as it is named."""
        with self.written:
            assert self.written.wait_for(lambda: all(self.getvalue().count(part) >= parts.count(part) for part in parts), timeout=600)


def test_progress_is_a_line_now_and_then_in_a_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    list(followed(range(3), "counting"))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("comad.cli.terminal.PLAIN_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", log := Log())
    with progress() as bar:
        task = bar.add_task("counting", total=4)
        bar.advance(task)
        log.wait_for("25 %", "25 %")
    assert set(log.getvalue().splitlines()) <= {"counting: 0 %", "counting: 25 %"}


def test_what_is_followed_says_in_a_log_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comad.cli.terminal.PLAIN_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", log := Log())
    for thing in followed(range(4), "drawing"):
        if thing == 3:
            log.wait_for("drawing: 75 %")
