import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from comad.methods.library import Library, Opening, admit, consulted, likeness, observe, recognize, reusability


def library(used: int, own: list[float], noise: list[float]) -> Library:
    blank = Library.create(4, 5)
    return Library(jnp.int32(used), blank.active, blank.head_of_task, jnp.array(own), jnp.array(noise), blank.scores)


OPENED_TWO = library(2, own=[3.0, 8.0, 0.0, 0.0], noise=[-1.0, -12.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("rule", "scores", "head"),
    [
        ("absolute", [1.9, 1.0, 9.0, 9.0], 2),  # nobody above d0 = 2, and unopened heads do not count: a new one
        ("absolute", [2.1, 2.5, 0.0, 0.0], 1),  # the most familiar of those above
        ("relative", [2.7, 5.9, 0.0, 0.0], 0),  # (2.7 + 1) / 4 = .925 beats (5.9 + 12) / 20 = .895, though its score is lower
        ("relative", [2.5, 5.9, 0.0, 0.0], 2),  # .875 and .895: neither near enough to its own
    ],
)
def test_a_task_gets_the_most_familiar_head_or_a_new_one(rule: Opening, scores: list[float], head: int) -> None:
    found = admit(OPENED_TWO, jnp.int32(3), jnp.array(scores), rule, threshold=2.0, ratio=0.9, expand=True)
    assert int(found.active) == head == int(found.head_of_task[3])
    assert int(found.used) == max(2, head + 1)


def test_data_that_a_head_finds_more_familiar_than_its_own_is_unlike_it() -> None:
    # The second head scores the data far higher than the first, and far higher than its own: it has never seen anything of the kind.
    scores = jnp.array([2.8, 20.0, 0.0, 0.0])
    assert np.allclose(likeness(OPENED_TWO, scores)[:2], [0.95, 0.4])
    assert int(recognize(OPENED_TWO, scores, "likeness")) == 0
    assert int(recognize(OPENED_TWO, scores, "highest")) == 1


def test_a_head_that_has_learned_nothing_is_sure_of_nothing() -> None:
    opened = library(3, own=[3.0, 8.0, 0.02, 0.0], noise=[-1.0, -12.0, 0.01, 0.0])
    assert int(recognize(opened, jnp.array([0.5, 0.0, 0.02, 0.0]), "likeness")) == 1
    assert float(likeness(opened, opened.own_score)[2]) == pytest.approx(0.01)
    followed = opened
    for _ in range(500):
        followed = observe(dataclasses.replace(followed, active=jnp.int32(2)), jnp.float32(2.0), jnp.float32(-3.0))
    assert np.allclose(followed.own_score, [3.0, 8.0, 2.0, 0.0], atol=1e-3) and np.allclose(followed.noise_score[2], -3.0, atol=1e-3)


def test_the_first_task_opens_the_first_head_and_nothing_opens_where_nothing_may() -> None:
    empty = library(0, [0.0] * 4, [0.0] * 4)
    first = admit(empty, jnp.int32(0), jnp.full(4, 99.0), "absolute", 2.0, 0.9, expand=False)
    assert int(first.active) == 0 and int(first.used) == 1
    again = admit(first, jnp.int32(1), jnp.full(4, -99.0), "absolute", 2.0, 0.9, expand=False)
    assert int(again.active) == 0 and int(again.used) == 1
    full = library(4, [1.0] * 4, [0.0] * 4)
    assert int(admit(full, jnp.int32(4), jnp.array([-3.0, -1.0, -2.0, -9.0]), "absolute", 2.0, 0.9, expand=True).active) == 1


def test_old_skills_are_weighed_by_familiarity_among_opened_heads() -> None:
    odds = jnp.array([[1.0, -5.0], [3.0, 2.0], [9.0, 9.0], [9.0, 9.0]])
    assert np.allclose(reusability(OPENED_TWO, odds, "ratio"), np.array([[0.25, 0], [0.75, 1], [0, 0], [0, 0]]), atol=1e-5)
    assert np.allclose(reusability(OPENED_TWO, odds, "uniform"), np.array([[0.5, 0.5], [0.5, 0.5], [0, 0], [0, 0]]))
    soft = np.asarray(reusability(OPENED_TWO, odds, "softmax"))
    assert np.allclose(soft.sum(0), 1) and np.allclose(soft[0, 0], 1 / (1 + np.exp(2.0))) and (soft[2:] == 0).all()


def test_the_heads_that_are_heard_are_the_one_that_learns_and_the_most_familiar() -> None:
    library = eqx.tree_at(
        lambda library: (library.used, library.active, library.scores),
        Library.create(5, 5),
        (jnp.int32(4), jnp.int32(1), jnp.array([3.0, -9.0, 1.0, 7.0, 0.0])),
    )
    assert consulted(library, 1).tolist() == [1] and consulted(library, 3).tolist() == [1, 3, 0]
    assert consulted(library, 5).tolist() == [1, 3, 0, 2, 4]  # one that was never opened comes last, and weighs nothing
    odds = jnp.ones((3, 2))
    assert np.allclose(reusability(library, odds, "ratio", consulted(library, 3)), 1 / 3)
    assert np.allclose(reusability(library, jnp.ones((5, 2)), "uniform", consulted(library, 5))[-1], 0.0)
