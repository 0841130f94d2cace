"""Whatever a run vouches for is checked by whoever reads it: a changed record is damage, never a number."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from finished import Skilled, make_run, record_all
from hypothesis import given, settings
from hypothesis import strategies as st
from placed import place
from reliability import tried

from comad.cli import main
from comad.errors import UserError
from comad.metrics import performance
from comad.policy import Policy
from comad.reports.page import going
from comad.reports.results import gather
from comad.runs.folder import digest, read_settings, write_settings
from comad.runs.journal import line_of, parse_journal
from comad.runs.record import read_run
from comad.runs.run import open_run
from comad.runs.seal import check_seal, parse, seal_run
from comad.runs.standing import look
from comad.runs.verify import seal_legacy, verify

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with checkpoints, of a method registered under a name that the readers know."""
    folder = tmp_path_factory.mktemp("trained")
    make_run(folder / "run", record_all(folder / "data"), "comad", Skilled())
    return folder / "run"


def replace_in(name: str, old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def drop_last_line(folder: Path) -> None:
    lines = (folder / "scores.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "scores.jsonl").write_bytes(b"".join(lines[:-1]))


def repeat_last_line_with_other_scores(folder: Path) -> None:
    lines = (folder / "scores.jsonl").read_text().splitlines(keepends=True)
    (folder / "scores.jsonl").write_text("".join([*lines, lines[-1].replace("0.5", "1.0")]))


def link_the_seal(folder: Path) -> None:
    (folder / "seal.json").rename(folder / "elsewhere")
    (folder / "seal.json").symlink_to(folder / "elsewhere")


CHANGES: dict[str, tuple[Change, str]] = {
    "a score": (replace_in("scores.jsonl", "0.5", "1.0"), "scores.jsonl is damaged: its first"),
    "a head": (replace_in("heads.jsonl", '"task": 0', '"task": 1'), "heads.jsonl is damaged: its first"),
    "a line less": (drop_last_line, "scores.jsonl is damaged: its first"),
    "the identity": (replace_in("settings.json", '"seed": 0', '"seed": 1'), "settings.json is damaged: it is not as it was written"),
    "how it was made": (replace_in("settings.json", '"cores": ', '"cores": 1'), "settings.json is damaged: it is not as it was written"),
    "the seal": (replace_in("seal.json", '"size": ', '"size": 1'), "is damaged: its first"),
    "no seal": (lambda folder: (folder / "seal.json").unlink(), r"seal.json is missing, so nothing vouches for the scores"),
    "a link as the seal": (link_the_seal, "seal.json: is a link"),
    "no number": (lambda folder: (folder / "seal.json").write_text("{}"), "seal.json is not a seal"),
    "another run's seal": (
        lambda folder: write_settings(folder, {**read_settings(folder), "identity": {**read_settings(folder)["identity"], "seed": 7}}),
        "belongs to a run of other settings",
    ),
    "settings without a seal": (
        lambda folder: (folder / "settings.json").write_text(json.dumps(read_settings(folder))),
        "settings.json has lost its seal",
    ),
}
READERS: dict[str, Callable[[Path], object]] = {
    "read_run": read_run,
    "look": look,
    "Policy.load": Policy.load,
    "comad heads": lambda path: command("heads", str(path)),
    "comad evaluate": lambda path: command("evaluate", str(path)),
    "comad play": lambda path: command("play", str(path), str(path.parent / "out.gif")),
    "comad portrait": lambda path: command("portrait", str(path)),
    "comad report": lambda path: command("report", str(path), "--out", str(path.parent / "report"), "--no-figures"),
}


def command(*words: str) -> None:
    """A command whose refusal is an error again, with what it says."""
    if main(list(words)) == 2:
        raise UserError("refused")


@pytest.mark.promise("foreign-records")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("change", CHANGES)
def test_every_reader_refuses_a_changed_record(
    tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str], change: str, reader: str
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    act, why = CHANGES[change]
    act(tmp_path / "run")
    with pytest.raises(UserError, match="refused" if reader.startswith("comad") else why):
        READERS[reader](tmp_path / "run")
    said = capsys.readouterr().err
    if reader.startswith("comad"):
        assert len(said.splitlines()) == 1 and said.startswith("comad: ") and str(tmp_path) in said


def test_the_report_shows_a_changed_run_as_damaged_and_never_its_number(tmp_path: Path) -> None:
    for seed in (0, 1):
        place(tmp_path, "owl", seed, [0.5, 1.0])
    replace_in("scores.jsonl", "[0.5, 1.0]", "[1.0, 1.0]")(tmp_path / "lbf-expert/owl-seed1")
    [result], [flaw] = gather([tmp_path])
    assert result.seeds == (0,) and performance(result.scores()) == pytest.approx([0.75])
    assert not flaw.counted and "owl-seed1/scores.jsonl is damaged" in flaw.why


def test_a_second_line_for_the_same_evaluation_is_damage_too(tmp_path: Path) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    repeat_last_line_with_other_scores(run)
    seal_run(run)
    assert read_run(run).pending == 0
    with pytest.raises(UserError, match="tells evaluation 1 of task 1 twice"):
        read_run(run).score_array()


def test_what_no_checkpoint_vouches_for_yet_is_shown_as_going_on(tmp_path: Path) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    lines = (run / "scores.jsonl").read_bytes().splitlines(keepends=True)
    (run / "scores.jsonl").write_bytes(b"".join(lines[:3]))
    seal_run(run)
    (run / "scores.jsonl").write_bytes(b"".join(lines))
    assert read_run(run).pending == 1
    standing = look(run)
    assert standing is not None and not standing.finished
    with pytest.raises(UserError, match="its last 1 lines are not sealed yet"):
        read_run(run).score_array()
    results, [flaw] = gather([tmp_path])
    assert results == [] and flaw.standing == standing
    assert verify(run).state == "in progress"


@pytest.mark.promise("power-loss")
@pytest.mark.parametrize("journal", ["scores", "heads"])
def test_what_a_loss_of_power_tears_after_the_seal_is_pending(tmp_path: Path, journal: str) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    lines = (run / "scores.jsonl").read_bytes().splitlines(keepends=True)
    (run / "scores.jsonl").write_bytes(b"".join(lines[:3]))
    seal_run(run)
    with (run / f"{journal}.jsonl").open("ab") as file:
        file.write(bytes(20) + lines[3][20:] + lines[3])
    assert read_run(run).scores == parse_journal(run, b"".join(lines[:3]))
    assert read_run(run).heads == []
    standing = look(run)
    assert standing is not None and not standing.finished
    _, [flaw] = gather([tmp_path])
    assert flaw.standing == standing and verify(run).state == "in progress"
    assert going(run, standing)["curve"] == [0.0, 1.0, 0.5]


@pytest.mark.promise("foreign-records")
def test_heads_that_were_added_to_a_finished_run_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    line = line_of({"task": 0, "name": "first", "when": "begin", "active": 0, "before": 0, "used": 1, "scores": []})
    (run / "heads.jsonl").write_bytes(line)
    seal_run(run)
    assert len(gather([run])[0]) == 1
    (run / "heads.jsonl").write_bytes(2 * line)
    results, [flaw] = gather([run])
    assert results == [] and "is not finished" in flaw.why and verify(run).state == "in progress"
    assert main(["heads", str(run)]) == 0
    assert f"the last 1 lines of {run} are not sealed yet" in capsys.readouterr().err


@pytest.mark.promise("foreign-records")
def test_a_record_that_its_checkpoint_contradicts_is_damaged_even_without_a_seal(tmp_path: Path, trained: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    (run / "settings.json").write_text(json.dumps(read_settings(run)))
    (run / "seal.json").unlink()
    assert len(gather([run])[0]) == 1
    replace_in("scores.jsonl", "0.25", "0.75")(run)
    results, [flaw] = gather([run])
    assert results == [] and "scores.jsonl is damaged" in flaw.why and verify(run).state == "damaged"


@pytest.mark.promise("foreign-records")
@pytest.mark.parametrize("lost", ["missing", "a dangling link"])
def test_a_run_that_lost_its_settings_is_shown_as_damaged(tmp_path: Path, lost: str) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    place(tmp_path, "owl", 1, [0.5, 1.0])
    (run / "settings.json").unlink()
    if lost != "missing":
        (run / "settings.json").symlink_to("nowhere")
    [result], [flaw] = gather([tmp_path])
    assert result.seeds == (1,) and flaw.path == run and not flaw.counted and "settings.json" in flaw.why
    assert verify(run).state == "damaged"


FORMLESS: dict[str, dict[str, Any]] = {
    "tasks that cannot be counted": {"identity": {"tasks": 5}},
    "no tasks": {"identity": {"tasks": []}},
    "no budget": {"identity": {"budget": 5}},
    "text as a number": {"identity": {"budget": {"updates": "x", "evaluations": 1}}},
    "earlier launches that are no list": {"earlier": 5},
}


@pytest.mark.promise("foreign-records")
@pytest.mark.parametrize("name", FORMLESS)
def test_verify_names_what_describes_no_training(tmp_path: Path, name: str) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    described, change = read_settings(run), FORMLESS[name]
    write_settings(run, {**described, **change, "identity": {**described["identity"], **change.get("identity", {})}})
    (run / "seal.json").unlink()
    seal_run(run)
    verdict = verify(run)
    assert verdict.state == "damaged" and "does not describe a training" in verdict.notes[0]


@pytest.mark.promise("option-ranges")
@pytest.mark.parametrize(("updates", "seed", "named"), [(-1, 0, "updates"), (10, 2**32, "seed")])
def test_a_run_with_a_number_outside_its_range_does_not_count(tmp_path: Path, updates: int, seed: int, named: str) -> None:
    run = place(tmp_path, "owl", seed, [0.5, 1.0], budget={"updates": updates, "evaluations": 1})
    results, [flaw] = gather([run])
    assert results == [] and f"{named} must be a whole number" in flaw.why


def test_a_run_without_seals_counts_and_says_so_until_it_is_sealed(tmp_path: Path) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    (run / "settings.json").write_text(json.dumps(read_settings(run)))
    (run / "seal.json").unlink()
    [result], [flaw] = gather([tmp_path])
    assert result.seeds == (0,) and flaw.counted and "made before seals existed" in flaw.why
    assert verify(run).state == "unsealed"
    assert seal_legacy(verify(run)).state == "sealed" and gather([tmp_path])[1] == []


@pytest.mark.promise("damage")
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_or_cut_of_what_is_sealed_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    run = place(folder, "owl", 0, [0.5, 1.0])
    content = read_run(run)
    path = run / data.draw(st.sampled_from(["settings.json", "scores.jsonl", "seal.json"]))
    whole = path.read_bytes()
    position = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    path.write_bytes(
        whole[:position] if cut else whole[:position] + bytes([whole[position] ^ 1 << data.draw(st.integers(0, 7))]) + whole[position + 1 :]
    )
    tried()
    try:
        found = read_run(run)
        assert (found.settings, found.scores, found.pending) == (content.settings, content.scores, 0)  # such as one space for another
        assert not found.legacy
    except UserError:
        pass


def test_a_seal_is_of_values_not_of_files(tmp_path: Path) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    seal = parse(run / "seal.json", json.loads((run / "seal.json").read_text()))
    record = read_run(run)
    written = b"".join(map(line_of, record.scores))
    assert seal.journals["scores"].size == len(written) and parse_journal(run, written) == record.scores
    assert seal.identity == digest(record.settings["identity"])
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


def test_a_run_that_goes_back_seals_only_what_it_still_has(tmp_path: Path, trained: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run/checkpoints/000000003.safetensors").write_bytes(b"damage")
    with open_run(tmp_path / "run", read_settings(tmp_path / "run")) as run:
        found = run.resume()
        assert found is not None and found.position == 1
        sealing, data = check_seal(tmp_path / "run")
        assert sealing.seal is not None and sealing.pending(data) == 0
        assert len(read_run(tmp_path / "run").scores) == 2


@pytest.mark.promise("foreign-records")
def test_verify_tells_sound_runs_from_damaged_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(tmp_path, "owl", 0, [0.5, 1.0])
    assert main(["verify", str(tmp_path)]) == 0
    assert "1 runs: 1 sealed" in capsys.readouterr().out
    drop_last_line(place(tmp_path, "owl", 1, [0.5, 1.0]))
    (place(tmp_path, "owl", 2, [0.5, 1.0]) / "cost.json").write_text("[")
    assert main(["verify", str(tmp_path)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "3 runs: 2 sealed, 1 damaged" in said or "3 runs: 1 damaged, 2 sealed" in said
    assert "its first" in said and "cost.json" in said
    assert main(["verify", str(tmp_path / "nothing")]) == 2


@pytest.mark.parametrize("content", ["[1]", '{"seconds": "many"}', "{", '{"seconds": 1e300}'])
def test_a_damaged_cost_or_portrait_costs_nothing_else(tmp_path: Path, content: str) -> None:
    run = place(tmp_path, "owl", 0, [0.5, 1.0])
    (run / "cost.json").write_text(content)
    (run / "portrait.json").write_text(content)
    [result], flaws = gather([tmp_path])
    assert result.seeds == (0,) and read_run(run).cost is None
    assert [flaw.counted for flaw in flaws] == [True, True] and {"cost.json", "portrait.json"} == {
        name for name in ("cost.json", "portrait.json") for flaw in flaws if name in flaw.why
    }
