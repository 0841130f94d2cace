"""Tables say what the runs say: numbers computed by hand, flaws named, doubles refused."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from placed import place

from comad.cli import main, train
from comad.errors import UserError
from comad.methods.comad import Comad
from comad.reports.results import from_scratch, gather, label_of, per_seed, published, summaries
from comad.reports.tables import comma_separated, latex, main_table, markdown
from comad.runs.folder import read_settings, write_settings
from comad.runs.seal import seal_run
from comad.runs.standing import look
from comad.settings import settings
from comad.streams import STREAMS


def test_a_row_holds_what_can_be_computed_by_hand(tmp_path: Path) -> None:
    place(tmp_path, "comad", 0, [1.0, 1.0])
    place(tmp_path, "comad", 1, [0.6, 0.8])
    place(tmp_path, "fs", 0, [0.0, 0.5], learned=0.5)
    results, flaws = gather([tmp_path])
    assert flaws == [] and [result.label for result in results] == ["comad", "fs"] and results[0].seeds == (0, 1)
    found = summaries(results[0], results)
    assert found["P"].mean == pytest.approx(85.0) and found["P"].std == pytest.approx(15.0)
    assert found["BwT"].mean == pytest.approx((0.0 - 40.0) / 2)
    # Curves of (start, end) on each task: ours (0, 1) and (0, 1 or 0.8), from scratch (0, 0.5) and (0, 0.5).
    assert found["FwT"].mean == pytest.approx(100 * ((0.25 + 0.25) / 2 + (0.25 + 0.15) / 2) / 2)

    rows = main_table(results)
    assert [(row.label, row.rank) for row in rows] == [("comad", 1), ("fs", 2)]
    assert rows[0].theirs["P"] == (99.26, 0.08) and rows[0].difference("P") == pytest.approx(85.0 - 99.26)
    assert "| comad | 2 | **85.0 ± 15.0** | 0.0 to 100.0 | 85.0 | 99.3 (-14.3) |" in markdown(rows)
    assert r"lbf & expert & 10 & comad & $\mathbf{85.0 \pm 15.0}$" in latex(rows)
    read = list(csv.DictReader(io.StringIO(comma_separated(rows))))
    assert float(read[0]["P_mean"]) == 85.0 and float(read[0]["BwT_mean"]) == -20.0 and read[1]["rank"] == "2"
    assert float(read[0]["P_late"]) == 85.0


def test_equal_methods_share_a_rank_and_missing_references_are_said_to_be_missing(tmp_path: Path) -> None:
    for name in ("comad", "owl"):
        place(tmp_path, name, 0, [1.0, 1.0])
    place(tmp_path, "ft", 0, [0.0, 1.0])
    rows = main_table(gather([tmp_path])[0])
    assert [(row.label, row.rank) for row in rows] == [("comad", 1), ("owl", 1), ("ft", 3)]
    assert all("FwT" not in row.ours for row in rows) and markdown(rows).count("missing") == 3


def test_variants_and_methods_alone_have_no_rank(tmp_path: Path) -> None:
    place(tmp_path, "comad", 0, [0.5, 0.5])
    place(tmp_path, "ft", 0, [0.0, 0.5])
    place(tmp_path, "comad-other", 0, [1.0, 1.0])
    place(tmp_path, "owl", 0, [1.0, 1.0], stream="cn")
    rows = main_table(gather([tmp_path])[0])
    assert {row.label: row.rank for row in rows} == {"comad": 1, "ft": 2, "comad-other": None, "owl": None}
    assert markdown(rows).count("**") == 2 and {line["rank"] for line in csv.DictReader(io.StringIO(comma_separated(rows)))} == {
        "1",
        "2",
        "",
    }


def test_each_place_is_printed_as_a_table_of_its_own_in_which_long_names_stay_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place(tmp_path, "comad-without-guidance-and-without-expansion", 0, [1.0, 1.0])
    place(tmp_path, "ft", 0, [0.0, 0.5])
    place(tmp_path, "owl", 0, [1.0, 0.5], stream="cn")
    assert main(["report", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = [number for number, line in enumerate(lines) if line.strip().endswith(" data, 10 updates per task")]
    assert [lines[number].split(",")[0] for number in headings] == ["cn", "lbf"]
    methods = [line.split("│")[1].strip() for line in lines[headings[1] :] if line.startswith("│")]
    assert methods == ["comad-without-guidance-and-without-expansion", "ft"]


def test_damaged_and_unfinished_runs_are_named_and_the_rest_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, "comad", 0, [1.0, 1.0])
    unfinished = place(tmp_path, "comad", 1, [1.0, 1.0]) / "scores.jsonl"
    unfinished.write_text("".join(unfinished.read_text().splitlines(keepends=True)[:-1]))
    seal_run(unfinished.parent)
    (place(tmp_path, "comad", 2, [1.0, 1.0]) / "scores.jsonl").write_text("{broken\n")
    seal_run(tmp_path / "lbf-expert/comad-seed2")
    (place(tmp_path, "comad", 3, [1.0, 1.0]) / "settings.json").write_text('{"identity": {}}')
    results, flaws = gather([tmp_path])
    assert len(results) == 1 and results[0].seeds == (0,)
    assert [flaw.path.name for flaw in flaws] == ["comad-seed1", "comad-seed2", "comad-seed3"]
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report"), "--no-figures"]) == 0
    out = capsys.readouterr().out
    assert "is not finished" in out and "line 1: damaged" in out and "comad-seed3/settings.json has lost its seal" in out
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
        "index.html",
        "seeds.csv",
        "table.csv",
        "table.md",
        "table.tex",
    ]


def spoil(name: str, change: Any) -> Any:
    """Change the parsed content of a run's file."""

    def apply(path: Path) -> None:
        text = (path / name).read_text()
        if name.endswith("jsonl"):
            (path / name).write_text("".join(json.dumps(change(json.loads(line))) + "\n" for line in text.splitlines()))
        else:
            write_settings(path, change(read_settings(path)))

    return apply


def without(part: str) -> Any:
    return lambda record: {name: value for name, value in record.items() if name != part}


DAMAGE = {
    "a task too many": spoil("scores.jsonl", lambda record: {**record, "task": 9 if record["point"] == 0 else record["task"]}),
    "a score too few": spoil("scores.jsonl", lambda record: {**record, "sampled": {"score": [1.0]}}),
    "nothing greedy": spoil("scores.jsonl", without("greedy")),
    "no scores": lambda path: (path / "scores.jsonl").unlink(),
    "no seed": spoil("settings.json", lambda settings: {"identity": without("seed")(settings["identity"])}),
    "no method": spoil("settings.json", lambda settings: {"identity": without("method")(settings["identity"])}),
    "heads without scores": lambda path: (path / "heads.jsonl").write_text('{"when": "begin", "active": 0, "task": 0}\n'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_whatever_is_wrong_with_a_run_the_others_are_counted(damage: str, tmp_path: Path) -> None:
    place(tmp_path, "comad", 0, [1.0, 1.0])
    broken = place(tmp_path, "owl", 0, [1.0, 1.0])
    DAMAGE[damage](broken)
    if damage != "no scores":
        seal_run(broken)  # as if it had been written so
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report"), "--no-figures"]) == 0
    results, flaws = gather([tmp_path])
    assert [result.label for result in results] == ["comad"] and [flaw.path for flaw in flaws] == [broken]


def test_one_seed_is_not_told_as_certain_and_what_says_nothing_is_left_out(tmp_path: Path) -> None:
    for name in ("comad", "mt", "fs"):
        place(tmp_path, name, 0, [1.0, 0.5])
    rows = {row.label: row for row in main_table(gather([tmp_path])[0])}
    text = markdown(list(rows.values()))
    assert "| comad | 1 | **75.0** |  |" in text and "±" not in text
    assert "| mt | 1 | **75.0** |  | 75.0 | 79.3 (-4.3) | - | - |" in text and rows["fs"].ours.keys() == {"P", "BwT"}
    assert rows["comad"].ours["BwT"].mean == 0.0 == rows["comad"].backward_over_all


def test_odd_names_do_not_break_the_forms(tmp_path: Path) -> None:
    place(tmp_path, "comad-a|b_50%&c", 0, [1.0, 1.0])
    rows = main_table(gather([tmp_path])[0])
    assert r"comad-a\|b\_50%\&c" in markdown(rows) and r"comad-a\textbar{}b\_50\%\&c" in latex(rows)


def test_two_runs_of_one_name_must_be_one_experiment(tmp_path: Path) -> None:
    place(tmp_path / "a", "comad", 0, [1.0, 1.0])
    place(tmp_path / "b", "comad", 0, [1.0, 1.0])
    with pytest.raises(UserError, match="are both seed 0 of comad on lbf; leave one of them out"):
        gather([tmp_path / "a", tmp_path / "b"])
    place(tmp_path / "c", "comad", 1, [1.0, 1.0], settings={"anchor": 0.0})
    with pytest.raises(UserError, match=r"have one name but differ: settings is absent there and .* here; give them names of their own"):
        gather([tmp_path / "a", tmp_path / "c"])


def test_forward_transfer_is_from_who_learned_alike_from_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def departures(identity: Any) -> list[str]:
        return [f"--{name} {value}" for name, value in identity["settings"].items()]

    quick, deaf = {"rate": 2}, {"deaf": 1}
    place(tmp_path, "fs", 0, [0.0, 0.0], learned=0.0, settings={})
    place(tmp_path, "fs-quick", 0, [1.0, 1.0], settings=quick)
    place(tmp_path, "fs-other", 0, [1.0, 1.0], settings={"rate": 3})
    for name, changed in {"comad": {}, "comad-quick": quick, "comad-quick-deaf": {**quick, **deaf}, "comad-deaf": deaf}.items():
        place(tmp_path, name, 0, [1.0, 1.0], settings=changed)
    results, _ = gather([tmp_path], departures)
    found = {result.label: getattr(from_scratch(result, results), "label", None) for result in results if result.method == "comad"}
    assert found == {"comad": "fs", "comad-deaf": "fs", "comad-quick": "fs-quick", "comad-quick-deaf": "fs-quick"}
    alone = [result for result in results if result.label in ("comad", "fs-quick")]
    assert from_scratch(alone[0], alone) is None, "another step is another beginning"
    # 'comad train' says what the report says.
    monkeypatch.setattr(train, "departures", departures)
    for result in results:
        if result.method == "comad":
            said = train.describe_forward_transfer(result.records[0], "sampled")
            assert f"FwT {per_seed(result, results)['FwT'][0]:+.1f} (against 1 from scratch)" == said


def test_one_seed_in_two_folders_is_told_by_their_names(tmp_path: Path) -> None:
    for name in ("first", "second"):
        place(tmp_path, "comad", 0, [1.0, 1.0]).rename(tmp_path / name)
    assert [result.label for result in gather([tmp_path])[0]] == ["comad (first)", "comad (second)"]
    settings = read_settings(tmp_path / "second")
    write_settings(tmp_path / "second", {**settings, "identity": {**settings["identity"], "seed": 1}})
    seal_run(tmp_path / "second")
    assert [(result.label, result.seeds) for result in gather([tmp_path])[0]] == [("comad", (0, 1))]


def test_nothing_to_report_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2 and main(["report", str(tmp_path / "nowhere")]) == 2
    assert "no finished run in" in capsys.readouterr().err


def test_names_and_published_numbers() -> None:
    assert label_of(Path("comad-seed0"), "comad", 5000, ()) == "comad" == label_of(Path("first"), "comad", 5000, ())
    assert label_of(Path("comad-no-skill-seed12"), "comad", 5000, ("--skill", "none")) == "comad-no-skill"
    assert label_of(Path("ft-5000-seed0"), "ft", 5000, ()) == "ft" and label_of(Path("comad-d0-4-seed0"), "comad", 5000, ()) == "comad-d0-4"
    assert published()["cn", "expert", "hissd", "P"] == (63.23, 2.16) and len(published()) > 380
    assert {stream for stream, *_ in published()} - {"overall"} <= STREAMS.keys()


def test_what_was_changed_is_told_where_the_folder_does_not_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, tasks = settings(Comad(recurrent=True)), [{"name": "first", "env": "cn-2"}, {"name": "second", "env": "cn-3"}]
    place(tmp_path / "a", "comad", 0, [1.0, 1.0], settings=plain, tasks=tasks)
    place(tmp_path / "b", "comad", 0, [0.5, 0.5], settings={**plain, "skill": "none"}, tasks=tasks)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report"), "--no-figures"]) == 0
    lines = (tmp_path / "report" / "table.csv").read_text().splitlines()
    rows = {line.split(",")[3]: line.split(",") for line in lines[1:]}
    published_mean = lines[0].split(",").index("P_published_mean")
    # The paper has a number for COMAD, and none for COMAD without skills.
    assert rows["comad"][published_mean] == "99.2600" and rows["comad --skill none"][published_mean] == ""
    assert rows["comad"][4:9] == ["sampled", "1", "", "100.0000", ""]


@pytest.mark.parametrize(("play", "grid", "ant"), [("usual", 100.0, 50.0), ("sampled", 100.0, 100.0), ("greedy", 50.0, 50.0)])
def test_teams_are_usually_drawn_and_greedy_where_actions_are_vectors(play: Any, grid: float, ant: float, tmp_path: Path) -> None:
    place(tmp_path, "comad", 0, [1.0, 1.0], greedily=0.5)
    running = place(tmp_path / "other", "owl", 0, [1.0, 1.0], greedily=0.5, actions="vectors", stream="ant-reward")
    rows = main_table(gather([tmp_path])[0], play)
    assert {row.label: row.ours["P"].mean for row in rows} == {"comad": grid, "owl": ant}
    assert {row.label: row.mode for row in rows} == {
        "comad": "sampled" if grid == 100 else "greedy",
        "owl": "sampled" if ant == 100 else "greedy",
    }
    standing = look(running)
    assert standing and standing.score == 0.5


def test_results_under_other_conditions_are_compared_with_care_and_every_seed_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place(tmp_path, "comad", 0, [1.0, 1.0])
    place(tmp_path, "comad", 3, [0.5, 1.0])
    place(tmp_path, "owl", 0, [1.0, 0.0], budget={"updates": 10, "evaluations": 1, "episodes": 4})
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report"), "--no-figures", "--play", "greedy"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "compare with care: owl on lbf, expert, beside comad: budget.episodes is absent there and 4 here" in said
    seeds = [line.split(",") for line in (tmp_path / "report" / "seeds.csv").read_text().splitlines()]
    assert [line[3:7] for line in seeds[1:]] == [
        ["comad", "greedy", "0", "100.0000"],
        ["comad", "greedy", "3", "75.0000"],
        ["owl", "greedy", "0", "50.0000"],
    ]
    assert "Greedy play." in (tmp_path / "report" / "table.md").read_text()
