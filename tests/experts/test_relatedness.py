"""What the policy of one task does in another: as it plays there, and how often it would have done the same."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from recorded import FULL_VIEW

from comad import envs
from comad.cli import main
from comad.cli.relatedness import matrix
from comad.envs.rollout import RandomPlayer, episode_keys, rollout
from comad.experts.library import SHIPPED
from comad.experts.relatedness import _keep, compare, likeness
from comad.types import Spec, Tokens


class Stubborn(eqx.Module):
    """A policy that always chooses one action, or at every step the action that it chose last, plus one."""

    first: Array
    step: int = eqx.field(static=True)

    def start(self, spec: Spec) -> Array:
        return self.first

    def act(self, carry: Array, tokens: Tokens, available: Array, key: Any) -> tuple[Array, Array]:
        return jnp.full(available.shape[0], carry), (carry + self.step) % available.shape[-1]


def test_a_policy_is_like_itself_and_like_another_by_the_share_of_same_decisions() -> None:
    spec = FULL_VIEW.spec
    player = RandomPlayer(spec)
    outcome, kept = rollout(FULL_VIEW, player, episode_keys(jax.random.key(0), 0, 16), _keep)
    decided = np.arange(spec.limit + 1)[None] < np.asarray(outcome.length)[:, None]
    choices = np.asarray(kept["available"]).sum(-1) > 1
    actions = np.asarray(kept["actions"])
    for action in range(3):
        expected = (actions == action)[decided[..., None] & choices].mean()
        assert likeness(spec, Stubborn(jnp.int32(action), 0), outcome, kept) == np.float32(expected)
    turning = np.broadcast_to(np.arange(spec.limit + 1)[None, :, None] % np.asarray(kept["available"]).shape[-1], actions.shape)
    expected = (actions == turning)[decided[..., None] & choices].mean()
    assert likeness(spec, Stubborn(jnp.int32(0), 1), outcome, kept) == np.float32(expected), "it carries what it carried"


def test_every_policy_plays_every_task() -> None:
    worlds = [envs.make("cn-2"), envs.make("cn-3")]
    found = list(compare(worlds, "expert", SHIPPED, 32, seed=0))
    assert [(one.policy, one.task) for one in found] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert found[0].likeness == found[3].likeness == 1.0 and 0.0 < found[1].likeness < 1.0
    success = matrix([float(np.mean(one.outcome.success)) for one in found], 2)
    assert success[0, 0] > 0.95 and success[1, 1] > 0.9 and success[0, 1] < success[1, 1]


def test_policies_are_rows_and_tasks_are_columns() -> None:
    assert matrix([1.0, 2.0, 3.0, 4.0], 2).tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_a_stream_that_is_not_there_is_one_sentence(capsys: Any) -> None:
    assert main(["experts", "compare", "nowhere"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
