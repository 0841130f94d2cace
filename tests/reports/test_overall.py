"""Methods over several streams: numbers by hand, and silence where a comparison would be unfair."""

from pathlib import Path

import pytest
from placed import place

from comad.reports.overall import overall
from comad.reports.results import gather
from comad.reports.tables import overall_markdown


def test_means_middles_and_chances_by_hand(tmp_path: Path) -> None:
    for stream, better, worse in (("lbf", (1.0, 0.8), (0.5, 0.5)), ("cn", (0.6, 0.4), (0.6, 0.7))):
        for seed in (0, 1):
            place(tmp_path / stream, "comad", seed, [better[seed]] * 2, stream=stream)
            place(tmp_path / stream, "ft", seed, [worse[seed]] * 2, stream=stream)
    rows = overall(gather([tmp_path])[0])
    assert [row.label for row in rows] == ["comad", "ft"] and rows[0].places == (("cn", "expert"), ("lbf", "expert"))
    ours, theirs = rows
    assert ours.mean and ours.middle and theirs.mean
    assert ours.mean.value == pytest.approx(70.0) and theirs.mean.value == pytest.approx(57.5)
    assert ours.middle.value == pytest.approx((80.0 + 60.0) / 2)  # 40 60 80 100 without the ends
    # On LBF both of ours beat both of theirs; on CN 60 ties with 60 and loses to 70, 40 loses twice.
    assert ours.improvement == {"ft": pytest.approx((4 + 0.5) / 8)} and theirs.improvement == {"comad": pytest.approx(3.5 / 8)}
    # Seeds are drawn within a stream: the largest mean takes the better seed of each.
    assert ours.mean.low == pytest.approx(60.0) and ours.mean.high == pytest.approx(80.0)


def test_a_method_that_lacks_a_stream_has_no_mean_and_a_stream_with_one_method_is_no_comparison(tmp_path: Path) -> None:
    for stream in ("lbf", "cn"):
        for name in ("comad", "owl"):
            place(tmp_path / stream, name, 0, [1.0, 1.0], stream=stream)
    place(tmp_path / "lbf", "ft", 0, [0.0, 0.0])
    place(tmp_path / "alone", "comad", 0, [0.0, 0.0], stream="cn-seq1")
    place(tmp_path / "lbf", "comad-no-skill", 0, [0.0, 0.0], settings={"skill": "none"})
    rows = {row.label: row for row in overall(gather([tmp_path])[0])}
    assert set(rows) == {"comad", "owl", "ft"}
    assert rows["ft"].mean is None and rows["ft"].missing == (("cn", "expert"),) and rows["ft"].improvement == {}
    assert rows["comad"].mean and rows["comad"].mean.value == 100.0 and rows["comad"].improvement == {"owl": 0.5}
    assert overall(gather([tmp_path / "alone"])[0]) == [] and overall_markdown([]) == ""
    text = overall_markdown(list(rows.values()))
    assert (
        "| 10 | ft | 0 | cn expert, lbf expert | missing on cn expert |  |" in text
        and "| comad | 1 | cn expert, lbf expert | 100.0 |" in text
    )
