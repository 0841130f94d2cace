from pathlib import Path

import numpy as np
import pytest
from recorded import FULL_VIEW, SHORT_SIGHT, record

from comad.cli import main
from comad.datasets.mix import mix
from comad.datasets.store import Dataset, check
from comad.errors import UserError


def parts(folder: Path) -> tuple[Dataset, Dataset]:
    return record(folder / "one", episodes=5), record(folder / "other", episodes=4, seed=1)


def episode(dataset: Dataset, number: int) -> dict[str, np.ndarray]:
    start, length = int(dataset.starts[number]), int(dataset.lengths[number])
    return {name: dataset.read(name, slice(start, start + length + 1)) for name in dataset.columns if not name.startswith("episode.")}


def test_episodes_come_from_each_part_in_turn_and_unchanged(tmp_path: Path) -> None:
    one, other = parts(tmp_path)
    mixed = mix(tmp_path / "mixed", (one, other), "mixed", 7)
    assert check(mixed) == [] and mixed.quality == "mixed" and len(mixed.lengths) == 7
    for number in range(7):
        source, row = (one, other)[number % 2], number // 2
        for name, values in episode(source, row).items():
            assert np.array_equal(episode(mixed, number)[name], values)
        for name in ("episode.success", "episode.terminated"):
            assert mixed.arrays[name][number] == source.arrays[name][row]
    assert mixed.provenance["parts"] == [["random", one.content], ["random", other.content]]


def test_parts_must_suffice_and_be_of_one_world(tmp_path: Path) -> None:
    one, other = parts(tmp_path)
    with pytest.raises(UserError, match="has 4 episodes, and a mixture of 10 needs 5"):
        mix(tmp_path / "mixed", (one, other), "mixed", 10)
    with pytest.raises(UserError, match="recorded in another world"):
        mix(tmp_path / "mixed", (one, record(tmp_path / "third", SHORT_SIGHT, 4)), "mixed", 4)
    assert not (tmp_path / "mixed").exists() and FULL_VIEW.spec == one.spec


def test_the_command_says_what_is_missing_and_what_came_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "mix", "--tasks", "cn-2", "--data", str(tmp_path)]) == 2
    assert "no dataset 'cn-2/expert'" in capsys.readouterr().err
    assert main(["collect", "--tasks", "cn-2", "--episodes", "6", "--data", str(tmp_path)]) == 0
    assert main(["data", "mix", "--tasks", "cn-2", "--episodes", "10", "--data", str(tmp_path)]) == 0
    assert "mixed: 10 episodes" in capsys.readouterr().out
    assert main(["data", "mix", "--tasks", "cn-2", "--of", "expert", "mixed", "--data", str(tmp_path)]) == 2
    assert "another name for the mixture" in capsys.readouterr().err
    for name in ("", ".", "../x", "/tmp", ".hidden"):
        assert main(["data", "mix", "--tasks", "cn-2", f"--quality={name}", "--episodes", "10", "--data", str(tmp_path)]) == 2
        assert "must be a plain name" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "cn-2").iterdir()) == ["expert", "medium", "mixed"]


def test_nothing_is_made_of_damaged_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "--tasks", "cn-2", "--episodes", "6", "--data", str(tmp_path)]) == 0
    file = tmp_path / "cn-2" / "medium" / "actions.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x77")
    for words in (["mix", "--tasks", "cn-2", "--episodes", "10"], ["export", "cn-2/medium", str(tmp_path / "out.h5")]):
        assert main(["data", *words, "--data", str(tmp_path)]) == 2
        assert "actions.npy: its bytes are not those that were written" in capsys.readouterr().err
    assert not (tmp_path / "cn-2" / "mixed").exists() and not (tmp_path / "out.h5").exists()
