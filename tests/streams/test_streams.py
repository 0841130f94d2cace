import pytest

from comad import envs, streams
from comad.errors import UserError


@pytest.mark.parametrize("name", streams.STREAMS)
def test_every_task_of_every_stream_can_be_made(name: str) -> None:
    stream = streams.find(name)
    assert stream.name == name
    for task in stream.tasks:
        assert envs.find(task.env).spec.env == task.env


def test_the_published_orders() -> None:
    sizes = {name: [int(task.env[3:]) for task in streams.find(name).tasks] for name in streams.STREAMS if "cn" in name}
    assert sizes["cn"] == [2, 3, 4, 5]
    assert sizes["cn-seq1"] == [5, 4, 3, 2]
    assert sizes["cn-seq2"] == [3, 5, 2, 4]
    assert sizes["cn-seq3"] == [4, 2, 5, 3]
    assert sizes["repeated-cn"] == [2, 3, 4, 5, 2, 3, 4, 5]
    assert [task.name for task in streams.find("lbf").tasks] == ["BottomLeft", "Bottom", "BottomRight", "Right", "TopRight"]
    assert streams.find("cn").threshold == 2 and streams.find("lbf").threshold == 8


def test_a_stream_of_ones_own() -> None:
    stream = streams.custom(["cn-3", "lbf-bottom", "cn-2"])
    assert [task.env for task in stream.tasks] == ["cn-3", "lbf-bottom", "cn-2"]


def test_bad_streams_are_named() -> None:
    with pytest.raises(UserError, match="did you mean cn-seq3 or cn-seq2 or cn-seq1"):
        streams.find("cn-seq9")
    with pytest.raises(UserError, match="no task"):
        streams.custom([])
