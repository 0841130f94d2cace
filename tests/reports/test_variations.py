"""What differs between runs is found by their settings, not by their names."""

from pathlib import Path
from typing import Any

from placed import place

from comad.reports.results import gather
from comad.reports.variations import families, orders, orphans

PLAIN = {"noise": 0.1, "skill": "gaussian", "expand": True, "threshold": None}


def test_variations_are_described_by_what_differs_and_numbers_are_swept_in_order(tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "comad": {},
        "comad-a": {"noise": 0.5},
        "comad-b": {"noise": 0.0},
        "comad-c": {"skill": "none", "expand": False},
        "comad-d0-2": {"threshold": 2.0},
        "comad-d0-4": {"threshold": 4.0},
    }
    for name, change in changes.items():
        place(tmp_path, name, 0, [1.0, 1.0], settings={**PLAIN, **change}, threshold=2.0)
    place(tmp_path, "ft", 0, [1.0, 1.0], settings={})
    (family,) = families(gather([tmp_path])[0])
    assert family.base.label == "comad"
    described = {one.result.label: one.described() for one in family.variations}
    # The stream's own d0 is 2: to say so changes nothing.
    assert described == {
        "comad-a": "noise 0.5",
        "comad-b": "noise 0.0",
        "comad-c": "expand off, skill none",
        "comad-d0-2": "as it is",
        "comad-d0-4": "threshold 4.0",
    }
    swept = {name: [(value, one.label) for value, one in values] for name, values in family.swept().items()}
    assert swept == {
        "noise": [(0.0, "comad-b"), (0.1, "comad"), (0.5, "comad-a")],
        "threshold": [(2.0, "comad"), (4.0, "comad-d0-4")],
    }


def test_settings_inside_settings_are_told_apart_and_a_variation_alone_is_not_forgotten(tmp_path: Path) -> None:
    place(tmp_path, "ft", 0, [1.0, 1.0], settings={"learner": {"temperature": 10.0, "clip": 1.0}})
    place(tmp_path, "ft-cold", 0, [1.0, 1.0], settings={"learner": {"temperature": 3.0, "clip": 1.0}})
    place(tmp_path, "ewc-strong", 0, [1.0, 1.0], settings={})
    place(tmp_path, "ft-short", 0, [1.0, 1.0], budget={"updates": 5, "evaluations": 1})
    results = gather([tmp_path])[0]
    (family,) = families(results)
    assert [one.described() for one in family.variations] == ["temperature 3.0"]
    assert [(value, one.label) for value, one in family.swept()["temperature"]] == [(3.0, "ft-cold"), (10.0, "ft")]
    assert [one.label for one in orphans(results)] == ["ft-short", "ewc-strong"]


def test_orders_are_the_same_tasks_in_another_stream(tmp_path: Path) -> None:
    there, back = [{"name": "first"}, {"name": "second"}], [{"name": "second"}, {"name": "first"}]
    place(tmp_path / "one", "comad", 0, [1.0, 1.0], stream="cn", tasks=there)
    place(tmp_path / "two", "comad", 0, [1.0, 1.0], stream="cn-seq1", tasks=back)
    place(tmp_path / "three", "comad", 0, [1.0, 1.0], stream="cn-seq2", quality="medium", tasks=back)
    place(tmp_path / "one", "ft", 0, [1.0, 1.0], stream="cn", tasks=there)
    (same,) = orders(gather([tmp_path])[0])
    assert [(one.label, one.stream, one.tasks) for one in same] == [
        ("comad", "cn", ("first", "second")),
        ("comad", "cn-seq1", ("second", "first")),
    ]
