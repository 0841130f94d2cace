"""Learning by playing a simulator outside JAX: many worlds side by side, and after each step of all of them a few updates.

Everything between two steps of the simulator is one compiled program: remember, learn, act.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from comad.envs.base import Env, HostEnv
from comad.errors import UserError
from comad.experts.joint import JointTeam, Moment, Normalizer, Transition, look_ahead, num_motors, num_seen, observe
from comad.experts.replay import Replay
from comad.types import PRNGKey, Spec, Step

GUIDE_NOISE = 0.2
"""Spread of what is added to each of a guide's actions."""


@runtime_checkable
class Learns(Protocol):
    """A trainer that learns from transitions, whoever made them. The functions below are its verbs."""

    @property
    def num_worlds(self) -> int:
        """Worlds played side by side."""
        ...

    @property
    def capacity(self) -> int:
        """Steps remembered over all worlds."""
        ...

    @property
    def warm_up(self) -> int:
        """Environment steps before learning begins: random actions, or a guide's."""
        ...

    @property
    def batch(self) -> int:
        """Transitions per update."""
        ...

    @property
    def rounds(self) -> int:
        """Rounds of updates after each step of all worlds."""
        ...

    @property
    def draws(self) -> int:
        """Batches per round."""
        ...

    @property
    def horizon(self) -> int:
        """Steps in one transition."""
        ...

    @property
    def discount(self) -> float:
        """Worth of a reward one step later."""
        ...

    @property
    def iterations(self) -> int:
        """Steps of all worlds in all."""
        ...

    def create(self, spec: Spec, key: PRNGKey) -> Any:
        """Fresh networks with all that learning needs."""
        ...

    def explore(self, learner: Any, seen: Float[Array, "lane number"], key: PRNGKey) -> Float[Array, "lane motor"]:
        """Actions that are good or new, from normalized numbers."""
        ...

    def improve(self, learner: Any, batches: list[Transition], share: Float[Array, ""], key: PRNGKey) -> tuple[Any, Float[Array, ""]]:
        """One round of updates at some share of the training; also the loss of the critics."""
        ...


class Mind(eqx.Module):
    """What is compiled: networks, memory and the next actions."""

    learner: Any
    normalizer: Normalizer
    replay: Replay
    actions: Float[Array, "lane motor"]
    """What is to be done next."""
    iteration: Int[Array, ""]
    key: PRNGKey
    guide: Any = None
    """Who plays instead of chance before learning begins, if anybody."""


class Shown(eqx.Module):
    """Where the worlds are."""

    seen: Float[Array, "lane number"]
    ended: Bool[Array, " lane"]
    terminated: Bool[Array, " lane"]


class HostState(eqx.Module):
    """Everything a training is; saved and loaded whole, it goes on in the same bits."""

    mind: Mind
    world: Any
    """As the simulator has it."""
    shown: Shown

    @property
    def iteration(self) -> Int[Array, ""]:
        """Steps of all worlds so far."""
        return self.mind.iteration


def init(settings: Learns, env: Any, key: PRNGKey) -> HostState:
    """Fresh networks, fresh worlds, an empty replay."""
    num_motors(env.spec)
    if not isinstance(env, HostEnv):
        raise UserError(f"{env.spec.env}: this trainer learns worlds outside JAX, such as ant-reward-0")
    if settings.warm_up >= settings.iterations * settings.num_worlds:
        raise UserError(
            f"nothing would be learned in {settings.iterations * settings.num_worlds} steps, since {settings.warm_up} go before"
        )
    world_key, mind_key = jax.random.split(key)
    world, step = env.reset_many(np.asarray(jax.random.bits(world_key, (settings.num_worlds,), jnp.uint32)))
    shown = show(env.spec, step)
    return HostState(think_first(settings, env.spec, shown, mind_key), world, shown)


@partial(jax.jit, static_argnums=0)
def show(spec: Spec, step: Step) -> Shown:
    """What the trainer needs of a step."""
    return Shown(observe(spec, step.tokens), step.ended, step.terminated)


@partial(jax.jit, static_argnums=(0, 1))
def think_first(settings: Learns, spec: Spec, shown: Shown, key: PRNGKey) -> Mind:
    """Before the first step."""
    network_key, act_key, next_key = jax.random.split(key, 3)
    actions = draw(act_key, settings.num_worlds, num_motors(spec))
    nothing = jnp.zeros(settings.num_worlds)
    example = Moment(shown.seen, actions, nothing, shown.ended, shown.terminated)
    return Mind(
        learner=settings.create(spec, network_key),
        normalizer=Normalizer.create(num_seen(spec)),
        replay=Replay.create(example, settings.num_worlds, settings.capacity // settings.num_worlds),
        actions=actions,
        iteration=jnp.int32(0),
        key=next_key,
    )


def draw(key: PRNGKey, lanes: int, motors: int) -> Float[Array, "lane motor"]:
    """Random actions."""
    return jax.random.uniform(key, (lanes, motors), minval=-1.0)


def begin_from(settings: Learns, state: HostState, team: JointTeam) -> HostState:
    """Networks that know nothing, and a team that plays in their place until they begin to learn from what it does."""
    # A copy, for a training gives its state away with every step.
    return replace(state, mind=replace(state.mind, guide=jax.tree.map(jnp.copy, team)))


def advance(settings: Learns, env: Env[Any] | HostEnv[Any], state: HostState, iterations: int) -> tuple[HostState, float]:
    """Play and learn for some steps of all worlds; also the mean loss of the critics."""
    assert isinstance(env, HostEnv)
    losses = []
    for _ in range(iterations):
        state, loss = iterate(settings, env, state)
        losses.append(loss)
    return state, float(jnp.stack(losses).mean())


def iterate(settings: Learns, env: HostEnv[Any], state: HostState) -> tuple[HostState, Float[Array, ""]]:
    """One step of all worlds, then some updates. Where an episode has ended nothing is done but to begin another."""
    mind, before = state.mind, state.shown
    ended = np.asarray(before.ended)
    actions = np.asarray(mind.actions).reshape(settings.num_worlds, env.spec.num_agents, -1)
    world, step = env.step_many(state.world, actions, ~ended)
    shown = show(env.spec, step)
    if ended.any():
        # All of them, though few are needed: programs are compiled for one number of worlds.
        seeds = np.asarray(jax.random.bits(mind.key, (settings.num_worlds,), jnp.uint32))
        fresh_world, fresh_step = env.reset_many(seeds)
        fresh = show(env.spec, fresh_step)
        world = jax.tree.map(partial(_where_lane, np.where, ended), fresh_world, world)
        shown = jax.tree.map(partial(_where_lane, jnp.where, ended), fresh, shown)
    mind, loss = think(settings, mind, before, step.reward, shown.seen)
    return HostState(mind, world, shown), loss


def _where_lane(where: Any, ended: np.ndarray, fresh: Any, played: Any) -> Any:
    return where(ended.reshape(-1, *[1] * (played.ndim - 1)), fresh, played)


@partial(jax.jit, static_argnames="settings", donate_argnames="mind")
def think(
    settings: Learns, mind: Mind, before: Shown, reward: Float[Array, " lane"], seen: Float[Array, "lane number"]
) -> tuple[Mind, Float[Array, ""]]:
    """Remember the step that was made, learn, and choose what to do now; also the mean loss of the critics."""
    learn_key, explore_key, draw_key, next_key = jax.random.split(mind.key, 4)
    moment = Moment(before.seen, mind.actions, jnp.where(before.ended, 0.0, reward), before.ended, before.terminated)
    replay = mind.replay.add(jax.tree.map(lambda leaf: leaf[:, None], moment))
    normalizer = mind.normalizer.add(before.seen)
    warm = mind.iteration * settings.num_worlds >= settings.warm_up
    share = mind.iteration / settings.iterations

    def learn(learner: Any, key: PRNGKey) -> tuple[Any, Float[Array, ""]]:
        sample_key, improve_key = jax.random.split(key)
        windows = replay.sample(sample_key, settings.draws * settings.batch, settings.horizon + 1)
        transitions = look_ahead(windows, settings.discount)
        transitions = replace(transitions, seen=normalizer(transitions.seen), following=normalizer(transitions.following))
        batches = [jax.tree.map(lambda leaf, at=at: leaf[at :: settings.draws], transitions) for at in range(settings.draws)]
        return settings.improve(learner, batches, share, improve_key)

    def go(learner: Any) -> tuple[Any, Float[Array, ""]]:
        learner, losses = jax.lax.scan(learn, learner, jax.random.split(learn_key, settings.rounds))
        return learner, losses.mean()

    learner, loss = jax.lax.cond(warm, go, lambda learner: (learner, jnp.float32(0.0)), mind.learner)
    explored = settings.explore(learner, normalizer(seen), explore_key)
    actions = jnp.where(warm, explored, first_actions(mind.guide, seen, draw_key, explored.shape[-1]))
    return Mind(learner, normalizer, replay, actions, mind.iteration + 1, next_key, mind.guide), loss


def first_actions(guide: JointTeam | None, seen: Float[Array, "lane number"], key: PRNGKey, motors: int) -> Array:
    """What is done before learning begins: chance, or about what the guide does, so that one learns what its actions are good for."""
    if guide is None:
        return draw(key, len(seen), motors)
    return jnp.clip(guide.decide(seen) + GUIDE_NOISE * jax.random.normal(key, (len(seen), motors)), -1.0, 1.0)
