import dataclasses

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import rel_entr
from scipy.stats import norm

from comad import theory
from comad.errors import UserError
from comad.theory import Tasks


def random_tasks(seed: int, num_tasks: int, tolerance: float) -> Tasks:
    random = np.random.default_rng(seed)
    return Tasks(
        rewards=random.normal(size=(num_tasks, 3, 4)),
        behavior=0.9 * random.dirichlet(np.ones(4), (num_tasks, 3)) + 0.025,
        visits=0.9 * random.dirichlet(np.ones(3), num_tasks) + 0.1 / 3,
        regularization=random.uniform(0.3, 1.5, num_tasks),
        tolerance=np.full(num_tasks - 1, tolerance),
    )


def opposed_tasks(tolerance: float) -> Tasks:
    """Two earlier tasks that pay for opposite actions, and a current one that pays for a third."""
    rewards = np.zeros((3, 3, 4))
    rewards[[0, 1, 2], :, [0, 1, 2]] = 2.0
    rewards[[0, 1], :, [1, 0]] = -2.0
    return dataclasses.replace(random_tasks(0, 3, tolerance), rewards=rewards)


# How many of the constraints bind is part of the example: see the test of complementary slackness.
EXAMPLES = {
    "slack": (random_tasks(1, 3, 5.0), 0),
    "one of one active": (random_tasks(2, 2, 0.05), 1),
    "one of two active": (dataclasses.replace(random_tasks(3, 3, 0.3), tolerance=np.array([0.3, 5.0])), 1),
    "two of two active": (random_tasks(4, 3, 0.3), 2),
    "conflict": (opposed_tasks(0.7), 2),
}
examples = pytest.mark.parametrize(("tasks", "active"), EXAMPLES.values(), ids=EXAMPLES.keys())


def value(tasks: Tasks, task: int, flat: np.ndarray) -> float:
    """The regularized value once more, in SciPy's words and for one task."""
    policy = flat.reshape(3, 4)
    per_state = (policy * tasks.rewards[task]).sum(1) - tasks.regularization[task] * rel_entr(policy, tasks.behavior[task]).sum(1)
    return float(tasks.visits[task] @ per_state)


def slope(tasks: Tasks, task: int, flat: np.ndarray) -> np.ndarray:
    ratio = np.log(flat.reshape(3, 4) / tasks.behavior[task]) + 1
    return np.asarray(tasks.visits[task][:, None] * (tasks.rewards[task] - tasks.regularization[task] * ratio)).ravel()


def solve_numerically(tasks: Tasks, floors: list[float]) -> np.ndarray:
    """The constrained problem over tables of probabilities, left to a general solver that knows nothing of mixtures."""
    last = len(floors)
    constraints = [{"type": "eq", "fun": lambda flat: flat.reshape(3, 4).sum(1) - 1, "jac": lambda _: np.repeat(np.eye(3), 4, axis=1)}]
    for task, floor in enumerate(floors):
        constraints.append(
            {
                "type": "ineq",
                "fun": lambda flat, task=task, floor=floor: value(tasks, task, flat) - floor,
                "jac": lambda flat, task=task: slope(tasks, task, flat),
            }
        )
    found = minimize(
        lambda flat: -value(tasks, last, flat),
        np.full(12, 0.25),
        jac=lambda flat: -slope(tasks, last, flat),
        bounds=[(1e-12, 1)] * 12,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.success, found.message
    return np.asarray(found.x).reshape(3, 4)


def least_allowed(tasks: Tasks) -> list[float]:
    optima = theory.single_task_optima(tasks)
    return [value(tasks, task, optima[task].ravel()) - float(tolerance) for task, tolerance in enumerate(tasks.tolerance)]


@examples
def test_the_mixture_is_what_a_general_solver_finds(tasks: Tasks, active: int) -> None:
    found = theory.solve(tasks)
    numerical = solve_numerically(tasks, least_allowed(tasks))
    assert found.policy == pytest.approx(numerical, abs=1e-4)
    assert value(tasks, len(tasks.rewards) - 1, found.policy.ravel()) == pytest.approx(
        value(tasks, len(tasks.rewards) - 1, numerical.ravel()), abs=1e-6
    )


@examples
def test_constraints_hold_and_only_those_that_bind_have_a_price(tasks: Tasks, active: int) -> None:
    found = theory.solve(tasks)
    slacks = [value(tasks, task, found.policy.ravel()) - floor for task, floor in enumerate(least_allowed(tasks))]
    assert found.slacks == pytest.approx(slacks, abs=1e-9)
    assert (found.slacks >= -1e-9).all() and (found.multipliers >= 0).all() and found.multipliers[-1] == 1
    assert found.multipliers[:-1] * found.slacks == pytest.approx(0, abs=1e-6)
    assert (found.multipliers[:-1] > 1e-3).sum() == active
    if not active:
        assert found.policy == pytest.approx(theory.single_task_optima(tasks)[-1])


@examples
def test_no_random_policy_within_the_constraints_does_better(tasks: Tasks, active: int) -> None:
    found = theory.solve(tasks)
    random = np.random.default_rng(0)
    # From close by, where about half keep an active constraint, to far off, where few do.
    spread = 10 ** random.uniform(-3, 0.5, (2000, 1, 1))
    policies = found.policy * np.exp(spread * random.normal(size=(2000, 3, 4)))
    policies /= policies.sum(-1, keepdims=True)
    values = theory.regularized_values(tasks, policies)
    feasible = (values[:, :-1] >= least_allowed(tasks)).all(1)
    assert feasible.sum() > 100
    assert values[feasible, -1].max() <= theory.regularized_values(tasks, found.policy)[-1] + 1e-9


@examples
def test_a_multiplier_is_the_price_of_tolerance(tasks: Tasks, active: int) -> None:
    def best(tolerance: np.ndarray) -> float:
        return float(theory.regularized_values(tasks, theory.solve(dataclasses.replace(tasks, tolerance=tolerance)).policy)[-1])

    assert approx_fprime(tasks.tolerance, best, 1e-5) == pytest.approx(theory.solve(tasks).multipliers[:-1], rel=1e-2, abs=1e-6)


def test_one_task_is_solved_by_its_own_optimum() -> None:
    tasks = random_tasks(5, 1, 1.0)
    found = theory.solve(tasks)
    expected = tasks.behavior[0] * np.exp(tasks.rewards[0] / tasks.regularization[0])
    assert found.policy == pytest.approx(expected / expected.sum(1, keepdims=True))
    assert found.multipliers == pytest.approx([1]) and found.slacks.size == 0
    assert found.policy == pytest.approx(solve_numerically(tasks, []), abs=1e-4)


def test_tolerances_that_no_policy_meets_are_refused_unless_references_were_learned_in_order() -> None:
    tasks = opposed_tasks(0.01)
    with pytest.raises(UserError, match="no policy keeps every earlier task within"):
        theory.solve(tasks)
    learned = theory.learn_in_order(tasks)
    assert learned[-1].slacks == pytest.approx(0, abs=1e-9) and (learned[-1].multipliers > 0).all()
    for task, solution in enumerate(learned[:-1]):
        kept = value(tasks, task, learned[-1].policy.ravel())
        assert kept == pytest.approx(value(tasks, task, solution.policy.ravel()) - 0.01, abs=1e-9)


def test_where_the_current_task_hardly_goes_the_multiplier_vanishes_but_the_old_skill_stays() -> None:
    visits = np.array([[1.0, 0.0, 0.0], [1e-7, 0.5, 0.5 - 1e-7]])
    tasks = dataclasses.replace(random_tasks(2, 2, 0.05), visits=visits)
    found = theory.solve(tasks)
    assert 0 < found.multipliers[0] < 1e-5 and found.slacks == pytest.approx(0, abs=1e-9)
    here, *elsewhere = theory.reusability(tasks, found.multipliers)[0]
    assert here > 0.5 and elsewhere == [0, 0]
    with pytest.raises(UserError, match="never visits state 1"):
        dataclasses.replace(tasks, visits=visits[::-1])


def test_what_is_no_instance_is_refused() -> None:
    tasks = random_tasks(0, 2, 0.1)
    with pytest.raises(UserError, match=r"tolerance must have shape \[1\]"):
        dataclasses.replace(tasks, tolerance=np.ones(2))
    with pytest.raises(UserError, match="visits must hold probabilities"):
        dataclasses.replace(tasks, visits=tasks.visits * 2)
    with pytest.raises(UserError, match="tolerance must be positive"):
        dataclasses.replace(tasks, tolerance=np.zeros(1))


def test_tied_modes_end_at_the_saddle_and_free_ones_at_an_optimum() -> None:
    path = theory.descend(np.array([3.0, 3.0]), tied=True, step_size=0.5)
    # On the diagonal the objective is half the square of the shared mean, and a constant.
    assert path[1] == pytest.approx([1.5, 1.5])
    coupled = path[-1]
    assert coupled == pytest.approx(theory.COUPLED, abs=1e-9)
    assert np.linalg.norm(theory.divergence_gradient(coupled)) < 1e-9
    # By hand: the spread of the data (5) against that of a mode (1) gives (1 - 5) / 2 across the diagonal, 1 / 2 along it.
    assert np.linalg.eigvalsh(theory.divergence_curvature(coupled)) == pytest.approx([-2.0, 0.5])
    for nudge in (1e-6, -1e-6):
        free = theory.descend(np.array([3.0, 3.0 + nudge]), tied=False)[-1]
        assert free == pytest.approx(theory.OPTIMAL * np.sign(nudge), abs=1e-6)
        assert np.linalg.eigvalsh(theory.divergence_curvature(free)).min() > 0
        assert theory.divergence(free) < 1e-9 < 1.3 < theory.divergence(coupled)
    with pytest.raises(UserError, match="one value"):
        theory.descend(theory.OPTIMAL, tied=True)


@pytest.mark.parametrize("means", [[0.3, -1.2], [3.0, 3.0], [-2.0, 2.0], [4.0, -5.0]])
def test_the_derivatives_of_the_toy_agree_with_finite_differences(means: list[float]) -> None:
    at = np.array(means)
    assert theory.divergence_gradient(at) == pytest.approx(approx_fprime(at, theory.divergence), abs=1e-6)
    assert theory.divergence_curvature(at) == pytest.approx(approx_fprime(at, theory.divergence_gradient), abs=1e-6)


def test_the_landscape_has_the_first_mean_across_and_falls_on_the_way() -> None:
    values, gradients = theory.landscape(np.linspace(-4, 4, 9))
    assert values[1, 5] == theory.divergence(np.array([1.0, -3.0]))
    assert gradients[1, 5] == pytest.approx(theory.divergence_gradient(np.array([1.0, -3.0])))
    assert values.min() == pytest.approx(0, abs=1e-12) and values == pytest.approx(values.T)
    for tied in (True, False):
        assert (np.diff(theory.divergence(theory.descend(np.array([3.0, 3.0]), tied))) <= 1e-12).all()


def test_the_coupled_density_is_the_geometric_mixture_of_the_two_modes() -> None:
    points = np.linspace(-6, 6, 121)
    modes = norm.pdf(points, theory.OPTIMAL[:, None])[:, None]
    tasks = Tasks(np.zeros((2, 1, 121)), modes / modes.sum(-1, keepdims=True), np.ones((2, 1)), np.ones(2), np.ones(1))
    mixture = theory.geometric_mixture(tasks, np.ones(2))[0]
    assert mixture == pytest.approx(theory.density(theory.COUPLED, points) * 0.1, abs=1e-9)
    assert theory.density(theory.OPTIMAL, points) == pytest.approx(modes.mean((0, 1)))
