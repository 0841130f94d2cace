"""Theorem 1 and the toy of the coupled solution: the best policy that keeps old tasks, and one mode that must serve two. NumPy only.

Theorem 1 (Section 4.4) asks for the policy that is best on the current task and hardly worse than a reference on every earlier one. Its
answer is a geometric mixture of the policies that are best on one task alone. Here the claim is about one-step tasks over tables, where it
can be computed and checked to the last digit. What it takes for the formula to be exact:

- States come from fixed distributions. With several steps they depend on the policy, as do the action values, and the problem is no longer
  concave in the policy; the formula then describes the problem in which the recorded states stand in for the visited ones.
- Every behavior policy gives every action some probability. Otherwise the regularizer is infinite for some policies.
- The current task visits every state. Elsewhere a slack constraint has multiplier zero and the formula divides zero by zero.
- Some policy meets all constraints with room to spare. Positive tolerances grant it if each reference solved the problem of its own time
  (``learn_in_order``), not if the references are the single-task optima: these may contradict each other.
- Policies are free in every state. For a team, the mixture of factored policies is factored, but its weights depend on the whole state,
  which no agent sees alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from comad.errors import UserError

Policy = np.ndarray
"""Probabilities [..., state, action]; leading axes are as many policies."""


@dataclass(frozen=True)
class Tasks:
    """One-step tasks over the same states and actions: a state is drawn, an action chosen, a reward paid. The last task is current."""

    rewards: np.ndarray
    """[task, state, action]; advantages do as well, since a constant per state changes no optimum."""
    behavior: np.ndarray
    """[task, state, action]: the policy that recorded the data, which learned policies are kept near to."""
    visits: np.ndarray
    """[task, state]: how often a task is in a state."""
    regularization: np.ndarray
    """[task]: the price of one nat of distance from the behavior policy."""
    tolerance: np.ndarray
    """[earlier task]: how much regularized value may be lost on it."""

    def __post_init__(self) -> None:
        num_tasks, num_states, _ = shape = self.rewards.shape
        expected = {"behavior": shape, "visits": (num_tasks, num_states), "regularization": (num_tasks,), "tolerance": (num_tasks - 1,)}
        for name, wanted in expected.items():
            if (found := getattr(self, name).shape) != wanted:
                raise UserError(f"{name} must have shape {list(wanted)} to fit rewards of shape {list(shape)}, not {list(found)}")
        for name in ("behavior", "visits"):
            if not np.allclose(getattr(self, name).sum(-1), 1.0) or getattr(self, name).min() < 0:
                raise UserError(f"{name} must hold probabilities: not negative, and one in sum over the last axis")
        for name in ("behavior", "regularization", "tolerance"):
            if not (getattr(self, name) > 0).all():
                raise UserError(f"{name} must be positive everywhere; the smallest entry is {getattr(self, name).min():g}")
        if not (self.visits[-1] > 0).all():
            state = int(np.argmin(self.visits[-1]))
            raise UserError(
                f"the current task never visits state {state}, so nothing decides the policy there; give it a small probability"
            )


@dataclass(frozen=True)
class Solution:
    """The best policy for the current task that keeps the earlier ones, and what keeping them costs."""

    policy: Policy
    multipliers: np.ndarray
    """[task]: value lost on the current task per unit of tolerance taken away from an earlier one; one for the current task itself."""
    slacks: np.ndarray
    """[earlier task]: how far its value is above the least allowed one."""


def solve(tasks: Tasks, references: Policy | None = None, precision: float = 1e-10) -> Solution:
    """Solve the constrained problem of Eq. (13) by Newton steps on the multipliers. Slacks are exact up to ``precision``.

    Args:
        tasks: The tasks, the current one last.
        references: Policies [earlier task, state, action] to be undercut by no more than the tolerance; if none, the single-task optima.
        precision: The largest violation of a constraint, and the largest slack under a positive multiplier.

    """
    if references is None:
        references = single_task_optima(tasks)[:-1]
    # Each reference is valued on its own task only.
    floors = np.array([regularized_values(tasks, policy)[task] for task, policy in enumerate(references)]) - tasks.tolerance
    # No policy is worth less than always choosing the action that is worst in reward and rarest in the data.
    worst = tasks.visits[-1] @ (tasks.rewards[-1] + tasks.regularization[-1] * np.log(tasks.behavior[-1])).min(-1)

    def evaluate(multipliers: np.ndarray) -> tuple[float, np.ndarray]:
        """The dual, a convex function of the multipliers that bounds the optimum from above, and its gradient, the slacks."""
        values = regularized_values(tasks, geometric_mixture(tasks, np.append(multipliers, 1.0)))
        slacks = values[:-1] - floors
        return float(values[-1] + multipliers @ slacks), slacks

    multipliers = np.zeros(len(floors))
    dual, slacks = evaluate(multipliers)
    for _ in range(500):
        if (slacks >= -precision).all() and (slacks[multipliers > 0] <= precision).all():
            multipliers = np.append(multipliers, 1.0)
            return Solution(geometric_mixture(tasks, multipliers), multipliers, slacks)
        if dual < worst:
            raise UserError("no policy keeps every earlier task within its tolerance; raise a tolerance")
        direction = _newton_direction(tasks, multipliers, slacks)
        multipliers, dual, slacks = _line_search(evaluate, multipliers, direction, dual, slacks)
    raise UserError("the multipliers grew without settling, as when hardly any policy keeps every earlier task; raise a tolerance")


def learn_in_order(tasks: Tasks) -> list[Solution]:
    """Solve the problem of every task in turn, each policy being the reference for its task from then on. This always has a solution."""
    found: list[Solution] = []
    for count in range(1, len(tasks.rewards) + 1):
        seen = Tasks(
            tasks.rewards[:count], tasks.behavior[:count], tasks.visits[:count], tasks.regularization[:count], tasks.tolerance[: count - 1]
        )
        references = np.array([solution.policy for solution in found]).reshape(-1, *tasks.rewards.shape[1:])
        found.append(solve(seen, references))
    return found


def single_task_optima(tasks: Tasks) -> Policy:
    """[task, state, action]: for every task the policy of largest regularized value, if no other task existed."""
    return _normalize(_optimal_logits(tasks))


def regularized_values(tasks: Tasks, policy: Policy) -> np.ndarray:
    """[..., task]: the mean reward of a policy on every task, less the price of its distance from the behavior policy there."""
    policy = policy[..., None, :, :]
    distance = (policy * (_log(policy) - np.log(tasks.behavior))).sum(-1)
    reward = (policy * tasks.rewards).sum(-1)
    return np.asarray((tasks.visits * (reward - tasks.regularization[:, None] * distance)).sum(-1))


def reusability(tasks: Tasks, multipliers: np.ndarray) -> np.ndarray:
    """[task, state]: the share of every task in the mixture, large where its constraint binds and where it is at home."""
    shares = (multipliers * tasks.regularization)[:, None] * tasks.visits
    # Never zero: the current task has multiplier one and visits every state.
    return np.asarray(shares / shares.sum(0))


def geometric_mixture(tasks: Tasks, multipliers: np.ndarray) -> Policy:
    """The optimal policy of Theorem 1, Eq. (14), for given multipliers [task]: single-task optima averaged in their logarithms."""
    return _normalize((reusability(tasks, multipliers)[:, :, None] * _optimal_logits(tasks)).sum(0))


def _newton_direction(tasks: Tasks, multipliers: np.ndarray, slacks: np.ndarray) -> np.ndarray:
    """Where to move the multipliers so that, to first order, every constraint that binds is just met."""
    curvature = _dual_curvature(tasks, np.append(multipliers, 1.0))
    # Where the mixture is all but one policy it hardly moves with its weights, and a bare Newton step would be endless: let no multiplier
    # grow much beyond tenfold. The trace of the identity is for two equal tasks whose constraints are met.
    curvature += np.diag(np.abs(slacks) / (10.0 * (1.0 + multipliers))) + (1e-12 * curvature.max() + 1e-30) * np.eye(len(slacks))
    # A multiplier that is about to be cut off at zero must not steer the others, or the cut step may lead uphill (Bertsekas, 1982).
    leaving = (multipliers <= 1e-9) & (slacks > 0)
    coupled = ~(leaving[:, None] | leaving[None])
    return -np.linalg.solve(np.where(coupled, curvature, np.diag(np.diag(curvature))), slacks)


def _line_search(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, direction: np.ndarray, dual: float, slacks: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """The longest of the halved steps, cut off at zero, that lowers the dual about as much as its slope promises."""
    # Sums of large multipliers times small slacks are known no better than this.
    rounding = 1e-13 * (1.0 + abs(dual) + start.sum())
    for halvings in range(60):
        moved = np.maximum(start + 0.5**halvings * direction, 0.0)
        moved_dual, moved_slacks = evaluate(moved)
        if moved_dual <= dual + 1e-4 * slacks @ (moved - start) + rounding:
            break
    return moved, moved_dual, moved_slacks


def _dual_curvature(tasks: Tasks, multipliers: np.ndarray) -> np.ndarray:
    """[earlier task, earlier task]: how slacks change with multipliers. A covariance under the mixture, hence never negative."""
    policy = geometric_mixture(tasks, multipliers)
    pull = tasks.rewards - tasks.regularization[:, None, None] * (_log(policy) - np.log(tasks.behavior))
    centered = tasks.visits[:, :, None] * (pull - (policy * pull).sum(-1, keepdims=True))
    weight = policy / ((multipliers * tasks.regularization) @ tasks.visits)[:, None]
    return np.asarray(np.einsum("isa,jsa,sa->ij", centered[:-1], centered[:-1], weight))


def _optimal_logits(tasks: Tasks) -> np.ndarray:
    """The logarithms of the single-task optima, up to a number per task and state, which cancels when a mixture of them is normalized."""
    return np.asarray(np.log(tasks.behavior) + tasks.rewards / tasks.regularization[:, None, None])


def _normalize(logits: np.ndarray) -> Policy:
    """Probabilities over the last axis."""
    unscaled = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(unscaled / unscaled.sum(-1, keepdims=True))


def _log(policy: Policy) -> np.ndarray:
    """The logarithm, with zero kept finite: times its own probability it still counts nothing."""
    return np.asarray(np.log(np.maximum(policy, np.finfo(float).tiny)))


COUPLED, OPTIMAL = np.array([0.0, 0.0]), np.array([-2.0, 2.0])
"""The means of the two modes, where one number must serve for both and where each has its own. The data have the optimal ones."""
# Sums over an even grid converge faster than any power of its spacing for functions as smooth and as soon over as these.
GRID = np.linspace(-12.0, 12.0, 481)


def density(means: np.ndarray, at: np.ndarray) -> np.ndarray:
    """[..., point]: the density of two unit Gaussians of equal weight with ``means[..., 2]`` at some points."""
    return np.asarray(np.exp(_log_density(means, at)))


def divergence(means: np.ndarray) -> np.ndarray:
    """[...]: the objective of the toy, the divergence (in nats) of a model with ``means[..., 2]`` from the data.

    Section 5.2 gives the data (unit Gaussians at -2 and 2), the model (unit Gaussians at two means), this objective, one shared mean as the
    coupled case, and both optima. It leaves open the weights of the modes (equal here), the integration (a sum over a grid here), how and
    from where one descends (plain gradient descent here), and the part of the plane that is shown.
    """
    return _expect_under_data(_log_density(OPTIMAL, GRID) - _log_density(means, GRID))


def divergence_gradient(means: np.ndarray) -> np.ndarray:
    """[..., 2]: each mean is drawn to the data for which its mode is responsible."""
    share, offset = _responsibilities(means)
    return -_expect_under_data(share * offset)


def divergence_curvature(means: np.ndarray) -> np.ndarray:
    """[..., 2, 2]: the second derivatives, with an eigenvalue below zero where a saddle is."""
    share, offset = _responsibilities(means)
    contested = share.prod(-2)
    signed = offset * np.array([[1.0], [-1.0]])
    outer = signed[..., :, None, :] * signed[..., None, :, :] * contested[..., None, None, :]
    return _expect_under_data(share)[..., :, None] * np.eye(2) - _expect_under_data(outer)


def landscape(ticks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The objective [second mean, first mean] and its gradient [second mean, first mean, 2] on a square with these ticks."""
    means = np.stack(np.meshgrid(ticks, ticks), -1)
    return divergence(means), divergence_gradient(means)


def descend(start: np.ndarray, tied: bool, step_size: float = 0.5, steps: int = 200) -> np.ndarray:
    """The path [step, 2] of gradient descent on the toy. Tied means are one number that both modes share."""
    path = [np.asarray(start, float)]
    if tied and path[0][0] != path[0][1]:
        raise UserError(f"tied means must start at one value, not at {path[0][0]:g} and {path[0][1]:g}")
    for _ in range(steps):
        gradient = divergence_gradient(path[-1])
        # A shared number feels the pull on both modes.
        path.append(path[-1] - step_size * (np.full(2, gradient.sum()) if tied else gradient))
    return np.array(path)


def _responsibilities(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[..., 2, point]: the probability that a mode produced a point of the grid, and the way from its mean to there."""
    offset = GRID - means[..., :, None]
    share = np.exp(-0.5 * offset**2 - np.logaddexp.reduce(-0.5 * offset**2, axis=-2, keepdims=True))
    return share, offset


def _log_density(means: np.ndarray, at: np.ndarray) -> np.ndarray:
    # Summed in logarithms, because far from both means the density itself is rounded to zero.
    exponents = -0.5 * (at - means[..., :, None]) ** 2
    return np.asarray(np.logaddexp.reduce(exponents, axis=-2) - np.log(2.0 * np.sqrt(2.0 * np.pi)))


def _expect_under_data(values: np.ndarray) -> np.ndarray:
    """The mean of values [..., point] over the data of the toy."""
    return np.asarray(values @ density(OPTIMAL, GRID) * (GRID[1] - GRID[0]))
