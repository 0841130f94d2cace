import jax
import numpy as np
import pytest

from comad import envs, streams
from comad.envs.base import Env
from comad.envs.rollout import episode_keys, rollout
from comad.experts import library

TASKS = [task.env for name in ("cn", "lbf") for task in streams.find(name).tasks]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_an_expert_and_a_medium_team_worth_about_half(name: str) -> None:
    env = envs.make(name)
    assert isinstance(env, Env)
    (_, expert), (_, medium) = (library.get(env, quality) for quality in library.QUALITIES)
    assert expert.episodes == medium.episodes == 2000
    assert 0.45 <= medium.total / expert.total <= 0.70


@pytest.mark.parametrize(("name", "quality"), [("cn-2", "expert"), ("lbf-bottom", "medium")])
def test_a_team_plays_as_its_card_says(name: str, quality: str) -> None:
    env = envs.make(name)
    assert isinstance(env, Env)
    player, card = library.get(env, quality)
    outcome, _ = rollout(env, player, episode_keys(jax.random.key(5), 0, 256))
    # Three standard errors of a share over 256 episodes.
    spread = 3 * np.sqrt(max(card.total * (1 - card.total), 0.01) / 256)
    assert float(outcome.total.mean()) == pytest.approx(card.total, abs=spread)
