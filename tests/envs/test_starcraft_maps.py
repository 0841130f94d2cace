import pytest

from comad.envs.starcraft_maps import starcraft_map
from comad.envs.vectors import widths
from comad.errors import UserError
from comad.types import Feature


def names(features: tuple[Feature, ...]) -> list[str]:
    return [feature.name for feature in features]


def test_marines_have_health_only() -> None:
    spec = starcraft_map("5m_vs_6m", 70).spec
    assert (spec.num_agents, spec.num_targets, spec.num_actions, spec.limit) == (5, 6, 12, 70)
    assert names(spec.state_agent) == ["health", "cooldown", "x", "y"] and names(spec.state_target) == ["health", "x", "y"]
    assert spec.env == "starcraft-5m_vs_6m" and '"limit": 70' in spec.rules


def test_enemies_have_their_types_in_the_other_order() -> None:
    spec = starcraft_map("starcraft-2s3z", 120).spec
    for ours in (spec.own, spec.ally, spec.state_agent):
        assert names(ours[-3:]) == ["shield", "stalker", "zealot"]
    for theirs in (spec.target, spec.state_target):
        assert names(theirs[-3:]) == ["shield", "zealot", "stalker"]


@pytest.mark.parametrize(
    ("name", "obs", "state"),
    [("3m", 30, 48), ("13m_vs_15m", 140, 370), ("1s1z", 32, 42), ("2s1z_vs_3z", 48, 66), ("4s4z_vs_8z", 128, 216), ("3s5z", 128, 216)],
)
def test_vectors_are_as_long_as_the_simulator_makes_them(name: str, obs: int, state: int) -> None:
    assert widths(starcraft_map(name, 60).spec) == (obs, state)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2q", "2q stands for no unit"),
        ("1m1s", "teams of marines only"),
        ("2s3z_vs_5m", "teams of marines only"),
        ("lbf-x", "cn-4 or a SMAC"),
    ],
)
def test_other_maps_are_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        starcraft_map(name, 60)
