import jax
import numpy as np
import pytest
from ants import ant_named
from ants import playable as movable
from battles import playable

from comad import envs, streams
from comad.envs.base import Env
from comad.envs.rollout import episode_keys, rollout
from comad.experts import library
from comad.experts.recipes import ANT, SEPARATE, recipe

BATTLES = {task.env: 0.9 for name in ("marines", "stalker-zealot") for task in streams.find(name).tasks} | {
    "protoss_5v5": 0.9,
    "protoss_10v11": 0.65,
    "terran_5v5": 0.8,
    "terran_10v11": 0.7,
    "zerg_5v5": 0.65,
    "zerg_10v11": 0.55,
}
"""How often a battle is won at least."""
TASKS = [task.env for name in ("cn", "lbf") for task in streams.find(name).tasks]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_an_expert_and_a_medium_team_worth_about_half(name: str) -> None:
    env = envs.make(name)
    assert isinstance(env, Env)
    (_, expert), (_, medium) = (library.get(env, quality) for quality in library.QUALITIES)
    assert expert.episodes == medium.episodes == 2000
    assert 0.45 <= medium.total / expert.total <= 0.70


@playable
@pytest.mark.parametrize("name", BATTLES)
def test_every_battle_that_is_shipped_is_won_by_its_expert_and_half_as_often_by_its_medium_team(name: str) -> None:
    env = envs.make(name)
    (_, expert), (_, medium) = (library.get(env, quality) for quality in library.QUALITIES)
    assert expert.episodes == medium.episodes >= 512
    assert expert.success >= BATTLES[name] and 0.45 <= medium.success / expert.success <= 0.70


@pytest.mark.parametrize("card", library.cards(), ids=lambda card: f"{card.env}-{card.quality}")
def test_a_card_tells_the_recipe_that_makes_its_team_again(card: library.Card) -> None:
    wanted = recipe(envs.find(card.env).spec, related="--related" in card.command)
    assert library.trainer_of(card) == wanted.trainer and card.start == wanted.start and card.episodes == wanted.chosen_by


def test_a_separate_policy_begins_from_nothing_but_for_the_ant_that_needs_a_guide() -> None:
    every = {task.env: envs.find(task.env).spec for stream in streams.STREAMS.values() for task in stream.tasks}
    assert {name for name, spec in every.items() if recipe(spec).start} == {"ant-dynamics-front"}
    assert every.keys() - SEPARATE.keys() == {name for name, spec in every.items() if recipe(spec) == ANT}
    assert {recipe(spec).start for name, spec in every.items() if name in ("cn-4", "13m_vs_15m", "zerg_20v23")} == {""}
    assert recipe(every["cn-4"], related=True).start == "cn-2"


@pytest.mark.parametrize(
    ("name", "quality"),
    [("cn-2", "expert"), ("lbf-bottom", "medium"), pytest.param("3m", "expert", marks=[pytest.mark.slow, playable])],
)
def test_a_team_plays_as_its_card_says(name: str, quality: str) -> None:
    env = envs.make(name)
    assert isinstance(env, Env)
    player, card = library.get(env, quality)
    outcome, _ = rollout(env, player, episode_keys(jax.random.key(5), 0, 256))
    # Three standard errors of a share over 256 episodes.
    spread = 3 * np.sqrt(max(card.success * (1 - card.success), 0.01) / 256)
    assert float(outcome.success.mean()) == pytest.approx(card.success, abs=spread)


ANTS = {
    "ant-reward-0": 4500,
    "ant-dynamics-back": 3049,
    "ant-dynamics-diagonal": 3500,
    "ant-dynamics-front": 4300,
    "ant-dynamics-mixed": 0,
}
"""What the teams of the Ant that are shipped must at least return."""


@pytest.mark.parametrize("task", sorted({task.env for name in ("ant-reward", "ant-dynamics") for task in streams.find(name).tasks}))
def test_every_ant_has_an_expert_and_a_medium_team(task: str) -> None:
    (_, expert), (_, medium) = (library.get(ant_named(task), quality) for quality in library.QUALITIES)
    assert expert.env == medium.env and expert.episodes == medium.episodes == 40
    assert expert.total >= ANTS[expert.env] and 0.55 <= medium.total / expert.total <= 0.80


@movable
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ant-reward-0", "ant-reward-315", "ant-dynamics-right", "ant-dynamics-front"])
def test_an_ant_runs_as_its_card_says_from_whichever_side(name: str) -> None:
    player, card = library.get(ant_named(name), "expert")
    outcome, _ = rollout(ant_named(name), player, episode_keys(jax.random.key(5), 0, 16))
    # One episode in twenty ends in a fall, which is worth little.
    assert float(np.median(outcome.total)) == pytest.approx(card.total, rel=0.1)
