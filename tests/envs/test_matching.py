import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from comad.envs.matching import has_perfect_matching, match_by_augmenting, match_by_subsets

by_subsets, by_augmenting = jax.jit(match_by_subsets), jax.jit(match_by_augmenting)


def by_scipy(adjacent: np.ndarray) -> bool:
    return bool((maximum_bipartite_matching(csr_matrix(adjacent), perm_type="column") >= 0).all())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 10, 15])
def test_agrees_with_scipy_on_graphs_where_both_answers_are_common(size: int) -> None:
    density = min(1.0, 1.2 * np.log(size + 1) / size)
    graphs = np.random.default_rng(size).random((512, size, size)) < density
    expected = np.array([by_scipy(graph) for graph in graphs])
    assert 0.1 < expected.mean() < 0.95 or size == 1
    assert (np.asarray(jax.jit(jax.vmap(has_perfect_matching))(graphs)) == expected).all()


@settings(deadline=None)
@given(arrays(bool, (4, 4)))
def test_both_formulations_agree(adjacent: np.ndarray) -> None:
    assert by_subsets(adjacent) == by_augmenting(adjacent) == by_scipy(adjacent)


@settings(deadline=None)
@given(st.permutations(range(15)))
def test_a_lone_permutation_is_matched_and_breaks_with_any_edge(order: list[int]) -> None:
    adjacent = np.zeros((15, 15), bool)
    adjacent[np.arange(15), order] = True
    assert by_augmenting(adjacent)
    adjacent[order[0], order[order[0]]] = False
    assert not by_augmenting(adjacent)
