import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.tokens import complete, draw_available, everyone, everyone_present, full_view, in_action, mask_unavailable
from comad.types import Continuous, Discrete, Spec, StateTokens, Tokens

AIMING = dataclasses.replace(Navigation(3, 8).spec, num_targets=2, actions=Discrete(("stop", "go"), targeted="attack"))


def blank(spec: Spec) -> Tokens:
    agents, others, targets = spec.num_agents, spec.num_agents - 1, spec.num_targets
    return Tokens(
        own=jnp.full((agents, len(spec.own)), 0.5),
        allies=jnp.zeros((agents, others, len(spec.ally))),
        targets=jnp.full((agents, targets, len(spec.target)), 0.5),
        ally_seen=jnp.ones((agents, others), bool),
        target_seen=jnp.ones((agents, targets), bool),
    )


def test_own_token_carries_number_and_last_action() -> None:
    done = complete(blank(AIMING), jnp.array([-1, 1, 3]), AIMING)
    assert done.own.shape == (3, AIMING.own_size) and done.targets.shape == (3, 2, AIMING.target_size)
    assert done.own[0].tolist() == [0.5, 0.5, 0, 0, 0, 0, 0, 0, 0, 0]
    assert done.own[1].tolist() == [0.5, 0.5, 0, 0, 0, 0, 1, 0, 1, 0]
    assert done.own[2].tolist() == [0.5, 0.5, 0, 0, 0, 1, 0, 0, 0, 1]


def test_aimed_at_target_carries_the_bit() -> None:
    done = complete(blank(AIMING), jnp.array([-1, 1, 3]), AIMING)
    assert done.targets[..., -1].tolist() == [[0, 0], [0, 0], [0, 1]]


def test_continuous_last_action_is_the_vector_itself() -> None:
    spec = dataclasses.replace(AIMING, actions=Continuous(("hip", "ankle")))
    done = complete(blank(spec), jnp.array([[0.0, 0.0], [0.25, -1.0], [0.5, 1.0]]), spec)
    assert done.own.shape[-1] == spec.own_size
    assert done.own[1, -2:].tolist() == [0.25, -1.0]
    assert done.targets.shape[-1] == spec.target_size == len(spec.target)


def test_full_view_sets_the_own_token_apart_whatever_the_leading_axes() -> None:
    values = np.arange(2 * 3 * 1, dtype=np.float32).reshape(2, 3, 1)
    state = StateTokens(
        agents=jnp.asarray(values),
        targets=jnp.asarray(values + 10),
        context=jnp.zeros((2, 0)),
        agent_present=jnp.array([[True, False, True]] * 2),
        target_present=jnp.array([[True, True, False]] * 2),
    )
    tokens = full_view(state)
    assert tokens.own[1, :, 0].tolist() == [3, 4, 5]
    assert tokens.allies[1, :, :, 0].tolist() == [[4, 5], [3, 5], [3, 4]]
    assert tokens.ally_seen[0].tolist() == [[False, True], [True, True], [True, False]]
    assert tokens.targets[0, :, :, 0].tolist() == [[10, 11, 12]] * 3
    assert tokens.target_seen[0].tolist() == [[True, True, False]] * 3
    marked = complete(tokens, jnp.zeros((2, 3), int), Navigation(3, 8).spec)
    assert everyone(marked).tolist() == values.tolist()
    assert everyone_present(tokens).tolist() == state.agent_present.tolist()


def test_a_situation_in_action_shows_what_is_done_and_to_whom() -> None:
    present = jnp.ones(3, bool)
    state = StateTokens(jnp.zeros((3, 2)), jnp.zeros((2, 2)), jnp.zeros(0), present, present[:2])
    shown = in_action(state, jnp.array([1, 3, 0]), AIMING)
    assert shown.agents.tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 1, 0, 0]]  # stop, go, and any attack
    assert shown.targets.tolist() == [[0, 0, 0], [0, 0, 1]]
    assert in_action(state, jnp.array([1, 3, 0]), Navigation(3, 8).spec).targets.shape == (2, 2), "nothing aims"


def test_masked_logits_never_win_and_stay_finite() -> None:
    masked = mask_unavailable(jnp.array([5.0, -1e6, 0.0]), jnp.array([False, True, True]))
    assert masked.argmax() == 2 and jnp.isfinite(masked).all()


def test_a_team_larger_than_its_numbers_is_refused() -> None:
    with pytest.raises(UserError, match="1 to 32 agents, not 33"):
        dataclasses.replace(AIMING, num_agents=33)


def test_action_names_follow_their_numbers() -> None:
    assert Discrete(("stop",), targeted="attack").names(2) == ("stop", "attack 0", "attack 1")


def test_every_available_action_is_drawn_equally_often_and_no_other() -> None:
    available = jnp.array([[True, False, True, True], [False, False, False, True]])
    drawn = jax.vmap(lambda key: draw_available(key, available))(jax.random.split(jax.random.key(0), 3000))
    shares = np.bincount(np.asarray(drawn[:, 0]), minlength=4) / 3000
    assert shares[1] == 0 and np.allclose(shares[[0, 2, 3]], 1 / 3, atol=0.03)
    assert (np.asarray(drawn[:, 1]) == 3).all()
