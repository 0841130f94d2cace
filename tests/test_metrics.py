import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import t, trim_mean

from comad import metrics
from comad.errors import UserError

# Two tasks, two updates each, evaluated before, between and after. Written as [task, point, on].
SCORES = np.array([[[0.0, 0.1], [0.6, 0.1], [0.9, 0.1]], [[0.9, 0.2], [0.8, 0.7], [0.7, 0.8]]])[None]
SCRATCH = np.array([[[0.0, 0.0], [0.5, 0.0], [0.8, 0.0]], [[0.8, 0.0], [0.1, 0.5], [0.0, 0.6]]])[None]

complete = arrays(float, st.tuples(st.integers(1, 3), st.just(3), st.integers(2, 4), st.just(3)), elements=st.floats(0, 1))


def test_the_worked_example() -> None:
    assert metrics.performance(SCORES) == pytest.approx([0.75])
    assert metrics.performance_over_time(SCORES)[0] == pytest.approx(np.array([[0, 0.3, 0.45], [0.55, 0.75, 0.75]]))
    assert metrics.performance_over_time(SCORES, over="seen")[0] == pytest.approx(np.array([[0, 0.6, 0.9], [0.55, 0.75, 0.75]]))
    assert metrics.backward_transfer(SCORES) == pytest.approx([-0.2])
    assert metrics.backward_transfer(SCORES, over="all") == pytest.approx([-0.1])
    # Task 1: (0 + .1 + .1) / 3, task 2: (.2 + .2 + .2) / 3.
    assert metrics.forward_transfer(SCORES, SCRATCH) == pytest.approx([0.4 / 3])


def test_a_number_out_of_a_hundred_holds_no_rounding_errors() -> None:
    """46 of 160 are 28.75 and show as 28.8, not as 28.749999999999996, which shows as 28.7."""
    assert 100 * 0.2875 != 28.75 == metrics.percent(0.2875)
    assert all(metrics.percent(points / 160) == points * 0.625 for points in range(161))


def test_late_performance_is_that_of_the_last_quarter_of_evaluations() -> None:
    # Nine points are one before learning and eight evaluations, of which the last two count: 0.5 and 0.9, on both tasks alike.
    scores = np.zeros((1, 2, 9, 2))
    scores[0, 1, -3:] = np.array([0.3, 0.5, 0.9])[:, None]
    assert metrics.late_performance(scores) == pytest.approx([0.7])
    # Of fewer than eight the last counts alone.
    assert metrics.late_performance(scores[:, :, -8:]) == pytest.approx([0.9])


@given(complete)
def test_a_learner_transfers_nothing_over_itself_and_performance_ends_where_it_ends(scores: np.ndarray) -> None:
    alone = scores[:1]
    assert metrics.forward_transfer(alone, alone) == pytest.approx([0.0])
    assert metrics.performance_over_time(scores)[:, -1, -1] == pytest.approx(metrics.performance(scores))
    tasks = scores.shape[1]
    assert metrics.backward_transfer(scores) * (tasks - 1) == pytest.approx(metrics.backward_transfer(scores, over="all") * tasks)


def test_nothing_is_made_up_for_a_missing_score() -> None:
    holed = SCORES.copy()
    holed[0, 1, 2, 0] = np.nan
    with pytest.raises(UserError, match="task 0 at point 2 of task 1 is missing for seed number 0"):
        metrics.performance(holed)
    with pytest.raises(UserError, match="as many tasks on both"):
        metrics.performance(SCORES[:, :1])
    with pytest.raises(UserError, match="one grid"):
        metrics.forward_transfer(SCORES, SCRATCH[:, :, :2])


@given(arrays(float, (2, 6), elements=st.floats(-5, 5)))
def test_the_interquartile_mean_is_scipys_trimmed_mean_where_quarters_are_whole(values: np.ndarray) -> None:
    assert metrics.interquartile_mean(values) == pytest.approx(trim_mean(values.ravel(), 0.25))


def test_the_interquartile_mean_weighs_the_edges_of_the_middle_half() -> None:
    # Of six runs the middle three count: half of the second, the third and fourth, half of the fifth.
    assert metrics.interquartile_mean(np.array([[0.0, 1.0, 2.0, 3.0, 4.0, 99.0]])) == pytest.approx((0.5 + 2 + 3 + 2) / 3)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_interval_holds_the_truth_as_often_as_it_says_even_for_few_seeds(seeds: int) -> None:
    found = [metrics.summarize(values) for values in np.random.default_rng(0).normal(0.5, 0.1, (1000, seeds))]
    assert 0.93 <= np.mean([one.low <= 0.5 <= one.high for one in found]) <= 0.97


def test_the_interval_is_scipys_and_stays_among_the_values_that_there_can_be() -> None:
    values = np.array([85.2, 75.0, 80.5])
    found = metrics.summarize(values)
    assert (found.low, found.high) == pytest.approx(t.interval(0.95, 2, values.mean(), values.std(ddof=1) / np.sqrt(3)))
    assert metrics.summarize(np.array([99.0, 100.0, 100.0]), 0.0, 100.0).high == 100.0
    assert metrics.summarize(np.array([70.0])) == metrics.Summary(70.0, 0.0, 70.0, 70.0)


def test_probability_of_improvement_counts_pairs() -> None:
    assert metrics.probability_of_improvement(np.array([[1.0, 3.0]]), np.array([[1.0, 2.0]])) == pytest.approx((0.5 + 0 + 1 + 1) / 4)
