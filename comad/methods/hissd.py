"""HiSSD: common skills, planned by what they lead to, beside skills that are specific to a task, told apart by contrast.

Three steps per update, each by its own optimizer:

    policy:   L = - log pi(a | history, common skills, task skill) + contrast * (own task's codes against other tasks')
    value:    L = expectile of (r + discount Vtot'(next) - Vtot)^2
    planner:  L = min(exp(sharpness * (r + discount Vtot'(next) - Vtot)), largest_weight) * |expected next state - next state|^2

Liu et al., "Learning Generalizable Skills from Offline Multi-Task Data for Multi-Agent Cooperation", 2025. In a stream (HiSSD-FT), the
first two tasks are learned together; from the third on, the policy and the task skills stay as they are, and only the planner learns.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad.continual.method import Logs
from comad.continual.omiga import acting, jolt, masked_mean
from comad.continual.schedules import DataSchedule, InTurn
from comad.errors import UserError
from comad.methods import descent, single
from comad.networks.attention import WIDTH
from comad.networks.layers import Draws, initialize
from comad.networks.mixer import AttentionMixer
from comad.networks.planning import Executor, OwnValue, Planner, Predictor, TaskEncoder
from comad.ranges import LearningRate, Range, Scale, Share, Spread, Strength, Updates, ranged
from comad.tokens import action_features, in_action
from comad.types import Actions, Batch, PRNGKey, Spec, Stream, Tokens

TOGETHER = 2
"""Tasks that are learned together at the start of a stream."""
ANCHORS = 32
"""Moments of a batch whose codes are contrasted."""
CODES = 256
"""Codes of each task that are kept for contrast."""


class Policy(eqx.Module):
    """What acts."""

    planner: Planner
    task: TaskEncoder
    executor: Executor


class Team(eqx.Module):
    """What is worth how much."""

    value: OwnValue
    mixer: AttentionMixer

    def __call__(self, batch: Batch) -> Float[Array, "row time"]:
        """The team's value at every moment."""
        return self.mixer(batch.state)(self.value(batch))


class HissdState(eqx.Module):
    """Everything that HiSSD is."""

    policy: Policy
    predictor: Predictor
    team: Team
    targets: tuple[TaskEncoder, Team]
    optimizers: tuple[descent.Optimizer, descent.Optimizer, descent.Optimizer]
    """Of the policy, the team's value, and the planner with its predictor."""
    codes: Float[Array, "task code width"]
    """Codes from each task's newest batch."""
    coded: Bool[Array, " task"]
    task: Int[Array, ""]
    update: Int[Array, ""]
    """Updates made on this task."""
    spec: Spec = eqx.field(static=True)


Memory = tuple[Float[Array, "agent width"], Float[Array, "agent width"]]


@dataclass(frozen=True)
@ranged
class Hissd:
    """Learns common and task-specific skills from the first two tasks together, then only plans anew (HiSSD-FT)."""

    multi_task: bool = False
    """Learn all tasks at once, in turn, as originally published."""
    learning_rate: LearningRate = 1e-4
    """Of AdamW."""
    weight_decay: Share = 1e-4
    """Of AdamW."""
    clip: Scale = 10.0
    """Largest norm of each step's gradient."""
    discount: Share = 0.99
    """Worth of a reward one step later."""
    contrast: Strength = 0.05
    """How strongly tasks are told apart."""
    expectile: Annotated[float, Range(above=0, below=1)] = 0.9
    """How far values lean towards what turned out well."""
    sharpness: Strength = 10.0
    """How much more the planner learns from what turned out well."""
    largest_weight: Scale = 100.0
    """And how much at most."""
    target_every: Updates = 80
    """Updates after which target networks are replaced."""
    critic_jolt: Spread = 0.01
    """How far value and mixer are moved at the start of a task from the third on."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> HissdState:
        """Fresh networks."""
        if len(stream.tasks) < TOGETHER:
            raise UserError(
                f"hissd tells tasks apart by contrast, so it needs a stream of {TOGETHER} tasks or more, "
                f"and {stream.name!r} has {len(stream.tasks)}; add a task, or take another method"
            )
        spec = specs[0]

        def make(draws: Draws) -> tuple[Policy, Predictor, Team]:
            policy = Policy(Planner.create(draws, spec), TaskEncoder.create(draws, spec), Executor.create(draws, spec))
            return policy, Predictor.create(draws, spec), Team(OwnValue.create(draws, spec), AttentionMixer.create(draws, spec))

        policy, predictor, team = initialize(make, key)
        num_tasks = len(stream.tasks) if self.multi_task else TOGETHER
        return HissdState(
            policy=policy,
            predictor=predictor,
            team=team,
            targets=(policy.task, team),
            optimizers=(descent.fresh(policy), descent.fresh(team), descent.fresh((policy.planner, predictor))),
            codes=jnp.zeros((num_tasks, CODES, WIDTH)),
            coded=jnp.zeros(num_tasks, bool),
            task=jnp.int32(0),
            update=jnp.int32(0),
            spec=spec,
        )

    @property
    def data(self) -> DataSchedule:
        """The data of the first two tasks in turn, then each task's own; or that of all in turn."""
        return InTurn() if self.multi_task else InTurn(first=TOGETHER)

    def frozen(self, task: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether only the planner learns."""
        return jnp.asarray(not self.multi_task) & (task >= TOGETHER)

    def begin(self, state: HissdState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> HissdState:
        """From the third task on, jolt the values and forget the optimizers' momentum."""
        value_key, mixer_key = jax.random.split(key)
        alone = self.frozen(task)
        distance = jnp.where(alone, self.critic_jolt, 0.0)
        team = Team(jolt(state.team.value, distance, value_key), jolt(state.team.mixer, distance, mixer_key))
        target = jax.tree.map(partial(jnp.where, alone), team, state.targets[1])
        optimizers = jax.tree.map(lambda leaf: jnp.where(alone, jnp.zeros_like(leaf), leaf), state.optimizers)
        state = replace(state, team=team, targets=(state.targets[0], target), optimizers=optimizers)
        return replace(state, task=jnp.asarray(task, jnp.int32), update=jnp.int32(0))

    def update(self, state: HissdState, batch: Batch, key: PRNGKey) -> tuple[HissdState, Logs]:
        """One step each of policy, values and planner."""
        contrast_key, code_key = jax.random.split(key)
        (team_slope, (advantage, logs)) = jax.grad(self.value_loss, has_aux=True)(state.team, state.targets[1], batch)

        def plan(planner: Planner) -> Float[Array, "row time agent entity width"]:
            return planner(planner.transformer.start(len(batch.step), batch.actions.shape[2]), batch.tokens, batch.first)[0]

        # One pass forward for two steps: the planner's skills serve the policy and the expectation.
        skills, pull_back = jax.vjp(plan, state.policy.planner)
        (from_policy, policy_slope), policy_logs = jax.grad(self.policy_loss, argnums=(0, 1), has_aux=True)(
            skills, state.policy, state, batch, contrast_key
        )
        (from_prediction, predictor_slope), prediction_logs = jax.grad(self.prediction_loss, argnums=(0, 1), has_aux=True)(
            skills, state.predictor, state, batch, advantage
        )
        (planner_slope,), (planned_slope,) = pull_back(from_policy), pull_back(from_prediction)
        # The policy also has a slope in how the planner instructs it.
        policy_slope = replace(policy_slope, planner=jax.tree.map(jnp.add, policy_slope.planner, planner_slope))

        descend = partial(descent.descend, learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        slopes = (policy_slope, team_slope, (planned_slope, predictor_slope))
        clipped, norms = zip(*(descent.clip(slope, self.clip) for slope in slopes), strict=True)
        policy, policy_optimizer = descend(state.policy, clipped[0], state.optimizers[0])
        alone = self.frozen(state.task)
        task, executor = jax.tree.map(
            lambda old, new: jnp.where(alone, old, new), (state.policy.task, state.policy.executor), (policy.task, policy.executor)
        )
        team, team_optimizer = descend(state.team, clipped[1], state.optimizers[1])
        (planner, predictor), planner_optimizer = descend((policy.planner, state.predictor), clipped[2], state.optimizers[2])

        renewed = (state.update + 1) % self.target_every == 0
        targets = jax.tree.map(lambda old, new: jnp.where(renewed, new, old), state.targets, (task, team))
        codes, coded = self.remember(state, batch, code_key)
        logs = {
            **logs,
            **policy_logs,
            **prediction_logs,
            **dict(zip(("gradient_policy", "gradient_value", "gradient_planner"), norms, strict=True)),
        }
        state = replace(state, policy=Policy(planner, task, executor), predictor=predictor, team=team, targets=targets, codes=codes)
        optimizers = (policy_optimizer, team_optimizer, planner_optimizer)
        return replace(state, optimizers=optimizers, coded=coded, update=state.update + 1), logs

    def value_loss(self, team: Team, target: Team, batch: Batch) -> tuple[Float[Array, ""], tuple[Float[Array, "row time"], Logs]]:
        """An expectile of what is to come; also how much better it came."""
        value = team(batch)
        # What follows a step is the next moment of its row; a row's last moment is never a step.
        following = jnp.roll(jax.lax.stop_gradient(target(batch)), -1, axis=1)
        surplus = batch.reward + self.discount * jnp.where(batch.terminated, 0.0, following) - value
        leaning = jnp.where(surplus > 0, self.expectile, 1.0 - self.expectile)
        loss = masked_mean(leaning * jnp.square(surplus), batch.step)
        logs = {"value_loss": loss, "value": masked_mean(value, batch.step)}
        return loss, jax.lax.stop_gradient((surplus, logs))

    def policy_loss(
        self, skills: Float[Array, "row time agent entity width"], policy: Policy, state: HissdState, batch: Batch, key: PRNGKey
    ) -> tuple[Float[Array, ""], Logs]:
        """Imitation by common and task skills, and the contrast that makes the latter the task's."""
        valid, num_targets = acting(batch), batch.tokens.targets.shape[3]
        summary = policy.task(batch.tokens)
        view = policy.executor.observer.look(batch, policy.planner.instruct(skills, num_targets))
        told, hit = policy.executor.head.judge(view, policy.task.skill(summary), batch)
        imitation = -masked_mean(told, valid)
        contrastive = self.contrastive_loss(policy.task, summary, state, batch, key)
        logs = {"policy_loss": imitation, "contrastive_loss": contrastive}
        if hit is not None:
            logs["accuracy"] = masked_mean(hit.astype(float), valid)
        return imitation + self.contrast * contrastive, logs

    def prediction_loss(
        self,
        skills: Float[Array, "row time agent entity width"],
        predictor: Predictor,
        state: HissdState,
        batch: Batch,
        advantage: Float[Array, "row time"],
    ) -> tuple[Float[Array, ""], Logs]:
        """How far what comes is from what the skills lead one to expect, weighed by how well it came."""
        agents, targets = predictor(skills, batch)
        doing = action_features(batch.actions, state.spec)
        goal_state, goal_doing = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=1), (batch.state, doing))
        size = goal_state.agents.shape[-1]
        parts = jnp.split(agents, (size, size + doing.shape[-1]), axis=-1)
        errors = [jnp.square(part - goal).mean((2, 3)) for part, goal in zip(parts, (goal_state.agents, doing, goal_doing), strict=True)]
        goal_targets = in_action(goal_state, batch.actions, state.spec).targets
        # What is done next is only known where there is a next step.
        goes_on = jnp.roll(batch.step, -1, axis=1)
        error = errors[0] + errors[1] + jnp.where(goes_on, errors[2], 0.0) + jnp.square(targets - goal_targets).mean((2, 3))
        weight = jnp.minimum(jnp.exp(jnp.minimum(self.sharpness * advantage, 20.0)), self.largest_weight)
        logs = {"prediction_error": masked_mean(error, batch.step), "weight": masked_mean(weight, batch.step)}
        return masked_mean(weight * error, batch.step), logs

    def contrastive_loss(
        self, encoder: TaskEncoder, summary: Float[Array, "row time agent width"], state: HissdState, batch: Batch, key: PRNGKey
    ) -> Float[Array, ""]:
        """Two agents at one moment are alike, those of other tasks are not; nothing to say of an agent alone or a task alone.

        Both must be there: the fallen look alike in all battles.
        """
        num_agents = summary.shape[2]
        if num_agents == 1:
            return jnp.float32(0.0)
        moment_key, agent_key = jax.random.split(key)
        first, offset = jax.random.randint(agent_key, (2,), 0, jnp.array([num_agents, num_agents - 1]))
        pair = jnp.stack([first, (first + 1 + offset) % num_agents])
        there = batch.step & batch.state.agent_present[..., pair].all(-1)
        chosen = draw_moments(moment_key, there, ANCHORS)
        anchor, alike = jnp.moveaxis(encoder.code(summary.reshape(-1, num_agents, WIDTH)[chosen][:, pair]), 1, 0)
        asking = anchor @ encoder.likeness
        positive = (asking * jax.lax.stop_gradient(alike)).sum(-1, keepdims=True)
        others = state.coded & (jnp.arange(len(state.coded)) != self.source(state))
        negative = jnp.where(jnp.repeat(others, CODES)[None], asking @ state.codes.reshape(-1, WIDTH).T, -jnp.inf)
        loss = -jax.nn.log_softmax(jnp.concatenate([positive, negative], axis=-1))[:, 0].mean()
        return jnp.where(self.frozen(state.task) | ~there.any(), 0.0, loss)

    def source(self, state: HissdState) -> Int[Array, ""]:
        """The task that this update's data is of, where tasks take turns."""
        return state.update % len(state.coded)

    def remember(self, state: HissdState, batch: Batch, key: PRNGKey) -> tuple[Array, Array]:
        """Keep codes of this batch, from the slowly following encoder."""
        moment_key, agent_key = jax.random.split(key)
        encoder, num_agents = state.targets[0], batch.actions.shape[2]
        agent = jax.random.randint(agent_key, (), 0, num_agents)
        there = batch.step & batch.state.agent_present[..., agent]
        chosen = draw_moments(moment_key, there, CODES)
        some = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[chosen], batch.tokens)
        codes = encoder.code(encoder(some))[:, agent]
        keep, source = self.frozen(state.task) | ~there.any(), self.source(state)
        return state.codes.at[source].set(jnp.where(keep, state.codes[source], codes)), state.coded.at[source].set(True)

    def start(self, state: HissdState, num_agents: int) -> Memory:
        """Empty memories of planner and policy."""
        empty = state.policy.planner.transformer.start(num_agents)
        return empty, empty

    def act(
        self,
        state: HissdState,
        memory: Memory,
        tokens: Tokens,
        available: Bool[Array, "agent action"],
        head: Int[Array, ""],
        greedy: Bool[Array, ""],
        key: PRNGKey,
    ) -> tuple[Actions, Memory]:
        """Common skills from one's history, the task's from what one sees, and an action by both: the likeliest if greedy, else drawn."""
        policy, goes_on = state.policy, jnp.zeros((1, 1), bool)
        moment = jax.tree.map(lambda leaf: leaf[None, None], tokens)
        skills, planning = policy.planner(memory[0][None], moment, goes_on)
        plan = policy.planner.instruct(skills, tokens.targets.shape[-2])
        view, executing = policy.executor.observer(memory[1][None], moment, goes_on, plan)
        by, chooser, possible = policy.task.skill(policy.task(moment)), policy.executor.head, available[None, None]
        actions = jnp.where(greedy, chooser.mode(view, by, possible), chooser.sample(view, by, possible, key))
        return actions[0, 0], (planning[0], executing[0])

    finish = single.finish
    route = single.route
    describe = single.describe


def draw_moments(key: PRNGKey, there: Bool[Array, "row time"], count: int) -> Int[Array, " count"]:
    """Some of the moments that are there, drawn with replacement, as places in rows end to end."""
    return jax.random.categorical(key, jnp.where(there.reshape(-1), 0.0, -jnp.inf), shape=(count,))
