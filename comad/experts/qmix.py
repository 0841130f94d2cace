"""QMIX: a team of agents that learns by playing, for the worlds in JAX with discrete actions.

Double Q-learning on the mixed value of greedy utilities, with traces over short windows instead of single steps (a sparse reward then
travels a window per update), layer normalization and slowly following targets. Collection, replay and updates are one compiled program.

    G_t = r_t + discount (1 - terminated_t) [ (1 - trace) V'_{t+1} + trace G_{t+1} ],   loss = (Qtot_t - G_t)^2

Rashid et al., "QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement Learning", 2018.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from comad import checkpoint
from comad.envs import look
from comad.envs.base import Env
from comad.errors import UserError
from comad.experts.agent import Agent, GreedyPlayer, choose
from comad.experts.mixer import Mixer
from comad.experts.replay import Replay
from comad.networks.layers import Draws, initialize
from comad.networks.mixer import AttentionMixer
from comad.ranges import Count, LearningRate, Scale, Share, Size, SizeOrZero, Steps, StepsOrZero, ranged
from comad.tokens import complete, mask_unavailable, no_actions
from comad.types import Actions, Discrete, PRNGKey, Spec, StateTokens, Step, Tokens


@dataclass(frozen=True)
@ranged
class Qmix:
    """Settings of the trainer."""

    width: Size = 64
    """Width of the agents' layers."""
    num_pools: Size = 2
    """Attention pools over the entities an agent sees."""
    relations: bool = False
    """Let agents weigh, target by target, which allies are near it."""
    attentive: bool = False
    """Mix by attention over the situation: units weigh by what they are, not by their places in a row."""
    recurrent: bool = False
    """Give agents a memory. The grid worlds show everything, so theirs need none."""
    num_worlds: Count = 32
    """Worlds played side by side."""
    unroll: Size = 8
    """Steps played in every world between updates."""
    num_updates: Size = 4
    """Gradient updates after each unroll."""
    capacity: Count = 4096
    """Steps remembered per world; a multiple of the unroll."""
    batch: Count = 32
    """Windows per update."""
    window: Size = 8
    """Steps per window that enter the loss."""
    burn_in: SizeOrZero = 0
    """Steps before them that only warm up the memory."""
    discount: Share = 0.99
    """Worth of a reward one step later."""
    trace: Share = 0.8
    """Weight of longer returns inside a window."""
    learning_rate: LearningRate = 5e-4
    """Of Adam."""
    final_rate: Share = 0.1
    """Share of the learning rate left at the end; it falls linearly."""
    clip: Scale = 10.0
    """Largest norm of a gradient."""
    target_rate: Share = 0.01
    """Share of the online weights that flows into the targets per update."""
    epsilon_start: Share = 1.0
    """Share of random actions at the start."""
    epsilon_end: Share = 0.05
    """And from then on."""
    epsilon_steps: Steps = 100_000
    """Environment steps in between."""
    settle: StepsOrZero = 0
    """Iterations in which only the mixer learns, so that agents with a past are not unlearned by a mixer without one."""
    steps: Steps = 2_000_000
    """Environment steps in all."""

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of one unroll over all worlds."""
        return self.num_worlds * self.unroll

    @property
    def iterations(self) -> int:
        """Unrolls in all."""
        return -(-self.steps // self.steps_per_iteration)

    def init(self, env: Any, key: PRNGKey) -> "TrainState":
        """Fresh networks, fresh worlds, an empty replay."""
        if not isinstance(env.spec.actions, Discrete) or not isinstance(env, Env):
            raise UserError(f"{env.spec.env}: qmix learns worlds in JAX whose actions are numbered")
        return init(self, env, key)

    def begin_from(self, state: "TrainState", team: Agent) -> "TrainState":
        """Take over every weight that the other team has; parts it lacks, such as relations, begin as they are."""
        given, fresh = dict(checkpoint.named_leaves(team)), checkpoint.named_leaves(state.online.agent)
        if not given.keys() <= dict(fresh).keys() or any(given[name].shape != leaf.shape for name, leaf in fresh if name in given):
            raise UserError("the weights to start from have other shapes than this world and these settings need")
        # Copies, because training gives its arrays away.
        leaves = [jnp.copy(given.get(name, leaf)) for name, leaf in fresh]
        agent = jax.tree.unflatten(jax.tree.structure(state.online.agent), leaves)
        online = replace(state.online, agent=agent)
        return replace(state, online=online, target=jax.tree.map(jnp.copy, online))

    def advance(self, env: Any, state: "TrainState", iterations: int) -> tuple["TrainState", Float[Array, ""]]:
        """Play and learn."""
        return train(self, env, state, jnp.int32(iterations))

    def team(self, state: "TrainState") -> Agent:
        """The agents' weights."""
        return state.online.agent

    def blank(self, spec: Spec) -> Agent:
        """Their shapes."""
        return jax.eval_shape(lambda: Networks.create(Draws(), self, spec).agent)

    def player(self, team: Agent, spec: Spec) -> GreedyPlayer:
        """Who takes the best action always."""
        return GreedyPlayer(team, jnp.float32(0.0))


class Networks(eqx.Module):
    """What is learned, and what targets copy."""

    agent: Agent
    mixer: Mixer | AttentionMixer

    @classmethod
    def create(cls, draws: Draws, settings: Qmix, spec: Spec) -> "Networks":
        """Fresh weights."""
        agent = Agent.create(draws, spec, settings.width, settings.num_pools, settings.relations, settings.recurrent)
        return cls(agent, (AttentionMixer if settings.attentive else Mixer).create(draws, spec))


class Moment(eqx.Module):
    """One entry of the replay: what was seen, done and earned."""

    tokens: Tokens | None
    """Left out where the state tells it all."""
    state: StateTokens
    available: Bool[Array, "*batch agent action"]
    first: Bool[Array, "*batch"]
    last_actions: Int[Array, "*batch agent"]
    actions: Int[Array, "*batch agent"]
    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    ended: Bool[Array, "*batch"]


class Lanes(eqx.Module):
    """The worlds being played, between two unrolls."""

    world: Any
    step: Step
    first: Bool[Array, " lane"]
    last_actions: Int[Array, "lane agent"]
    memory: Float[Array, "lane agent size"]


class TrainState(eqx.Module):
    """Everything a training is; saved and loaded whole, it goes on in the same bits."""

    online: Networks
    target: Networks
    optimizer: Any
    lanes: Lanes
    replay: Replay
    iteration: Int[Array, ""]
    key: PRNGKey


def optimizer(settings: Qmix) -> optax.GradientTransformation:
    """Adam with a falling rate."""
    schedule = optax.linear_schedule(
        settings.learning_rate, settings.final_rate * settings.learning_rate, settings.iterations * settings.num_updates
    )
    return optax.adam(schedule, eps=1e-5)


def descend(
    settings: Qmix, online: Networks, gradient: Networks, states: tuple[Any, Any], settled: Bool[Array, ""]
) -> tuple[Networks, tuple[Any, Any]]:
    """One step of the mixer and, if it has settled, of the agents; the gradient of those that move is clipped as a whole."""
    gradient = Networks(jax.tree.map(lambda leaf: jnp.where(settled, leaf, 0.0), gradient.agent), gradient.mixer)
    clipped, _ = optax.clip_by_global_norm(settings.clip).update(gradient, optax.EmptyState())

    def step(network: Any, slope: Any, state: Any) -> tuple[Any, Any]:
        change, state = optimizer(settings).update(slope, state)
        return optax.apply_updates(network, change), state

    mixer, mixer_state = step(online.mixer, clipped.mixer, states[1])
    # Adam counts steps: had it counted those in which agents rest, their first ones would be five times too long.
    agent, agent_state = jax.lax.cond(settled, step, lambda network, slope, state: (network, state), online.agent, clipped.agent, states[0])
    return Networks(agent, mixer), (agent_state, mixer_state)


@partial(jax.jit, static_argnames=("settings", "env"))
def init(settings: Qmix, env: Env[Any], key: PRNGKey) -> TrainState:
    """Fresh networks, fresh worlds, an empty replay."""
    weight_key, world_key, next_key = jax.random.split(key, 3)
    networks = initialize(partial(Networks.create, settings=settings, spec=env.spec), weight_key)
    lanes = open_lanes(settings, env, networks.agent, world_key)
    example = remember(env.spec, lanes, jnp.maximum(lanes.last_actions, 0), lanes.step)
    return TrainState(
        online=networks,
        target=jax.tree.map(jnp.copy, networks),
        optimizer=(optimizer(settings).init(networks.agent), optimizer(settings).init(networks.mixer)),
        lanes=lanes,
        replay=Replay.create(example, settings.num_worlds, settings.capacity),
        iteration=jnp.int32(0),
        key=next_key,
    )


def open_lanes(settings: Qmix, env: Env[Any], agent: Agent, key: PRNGKey) -> Lanes:
    """Every world at the start of an episode."""
    world, step = jax.vmap(env.reset)(jax.random.split(key, settings.num_worlds))
    last_actions, memory = no_actions(env.spec), agent.start(env.spec.num_agents)
    repeat = partial(jnp.repeat, repeats=settings.num_worlds, axis=0)
    return Lanes(world, step, jnp.ones(settings.num_worlds, bool), repeat(last_actions[None]), repeat(memory[None]))


@partial(jax.jit, static_argnames=("settings", "env"), donate_argnames="state")
def train(settings: Qmix, env: Env[Any], state: TrainState, iterations: Int[Array, ""]) -> tuple[TrainState, Float[Array, ""]]:
    """Play and learn for a number of iterations, which is not part of the program, for the last call has fewer; also the mean loss."""

    def one(_: Array, carry: tuple[TrainState, Float[Array, ""]]) -> tuple[TrainState, Float[Array, ""]]:
        state, loss = iterate(settings, env, carry[0])
        return state, carry[1] + loss

    state, losses = jax.lax.fori_loop(0, iterations, one, (state, jnp.float32(0.0)))
    return state, losses / iterations


def iterate(settings: Qmix, env: Env[Any], state: TrainState) -> tuple[TrainState, Float[Array, ""]]:
    """One unroll of every world, then a few updates."""
    play_key, learn_key, next_key = jax.random.split(state.key, 3)
    epsilon = exploration(settings, state.iteration)
    lanes, block = unroll(settings, env, state.online.agent, state.lanes, epsilon, play_key)
    replay = state.replay.add(block)

    def learn(carry: tuple[Networks, Networks, Any], key: PRNGKey) -> tuple[tuple[Networks, Networks, Any], Array]:
        online, target, optimizer_state = carry
        windows = replay.sample(key, settings.batch, settings.burn_in + settings.window + 1)
        loss, gradient = jax.value_and_grad(temporal_difference)(online, target, windows, settings, env.spec)
        online, optimizer_state = descend(settings, online, gradient, optimizer_state, state.iteration >= settings.settle)
        return (online, optax.incremental_update(online, target, settings.target_rate), optimizer_state), loss

    # The first windows need a full length of experience; until then the worlds are only played.
    ready = replay.count > settings.burn_in + settings.window + 1
    carry = (state.online, state.target, state.optimizer)
    keys = jax.random.split(learn_key, settings.num_updates)
    (online, target, optimizer_state), losses = jax.lax.cond(
        ready, lambda carry: jax.lax.scan(learn, carry, keys), lambda carry: (carry, jnp.zeros(settings.num_updates)), carry
    )
    return TrainState(online, target, optimizer_state, lanes, replay, state.iteration + 1, next_key), losses.mean()


def exploration(settings: Qmix, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """The probability of a random action."""
    done = iteration * settings.steps_per_iteration / settings.epsilon_steps
    return settings.epsilon_start + (settings.epsilon_end - settings.epsilon_start) * jnp.minimum(done, 1.0)


def unroll(settings: Qmix, env: Env[Any], agent: Agent, lanes: Lanes, epsilon: Float[Array, ""], key: PRNGKey) -> tuple[Lanes, Moment]:
    """Play every world for a few steps, starting a new episode wherever one ends."""
    start_key, scan_key = jax.random.split(key)
    # One set of fresh starts serves the whole unroll: a reset per step would cost more than the steps.
    starts = open_lanes(settings, env, agent, start_key)

    def advance(lanes: Lanes, now: tuple[PRNGKey, Array]) -> tuple[Lanes, Moment]:
        key, time = now
        act_key, world_key = jax.random.split(key)
        tokens = complete(lanes.step.tokens, lanes.last_actions, env.spec)
        utilities, memory = agent(lanes.memory, jax.tree.map(lambda leaf: leaf[:, None], tokens), lanes.first[:, None])
        actions = choose(utilities[:, 0], lanes.step.available, epsilon, act_key)
        world, step = jax.vmap(env.step)(lanes.world, actions, jax.random.split(world_key, settings.num_worlds))
        fresh = jax.tree.map(lambda leaf: jnp.roll(leaf, time, axis=0), starts)
        played = Lanes(world, step, jnp.zeros_like(lanes.first), actions, memory)
        following = jax.tree.map(partial(_where_lane, step.ended), fresh, played)
        return following, remember(env.spec, lanes, actions, step)

    lanes, moments = jax.lax.scan(advance, lanes, (jax.random.split(scan_key, settings.unroll), jnp.arange(settings.unroll)))
    return lanes, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), moments)


def _where_lane(ended: Bool[Array, " lane"], fresh: Array, played: Array) -> Array:
    return jnp.where(ended.reshape(-1, *[1] * (played.ndim - 1)), fresh, played)


def remember(spec: Spec, lanes: Lanes, actions: Actions, after: Step) -> Moment:
    """The replay entry of a step: the moment before it and what it brought."""
    step = lanes.step
    return Moment(
        tokens=None if spec.seen_in_state else step.tokens,
        state=step.state,
        available=step.available,
        first=lanes.first,
        last_actions=lanes.last_actions,
        actions=actions,
        reward=after.reward,
        terminated=after.terminated,
        ended=after.ended,
    )


def temporal_difference(online: Networks, target: Networks, windows: Moment, settings: Qmix, spec: Spec) -> Float[Array, ""]:
    """Mean squared distance of the team's value from its traced return."""
    tokens = complete(windows.tokens or look(spec, windows.state), windows.last_actions, spec)
    memory = jnp.zeros_like(online.agent.start(spec.num_agents))[None].repeat(settings.batch, axis=0)
    utilities, _ = online.agent(memory, tokens, windows.first)
    target_utilities, _ = target.agent(memory, tokens, windows.first)

    best = mask_unavailable(utilities, windows.available).argmax(-1)
    values = target.mixer(windows.state)(_pick(target_utilities, best))
    returns = jax.lax.stop_gradient(traced_returns(windows, values, settings))

    chosen = online.mixer(windows.state)(_pick(utilities, windows.actions))
    # A cut that is no end has no successor in the window, so nothing can be learned from it.
    known = ~(windows.ended & ~windows.terminated)
    counted = (known & (jnp.arange(known.shape[1]) >= settings.burn_in)[None])[:, :-1]
    return (jnp.square(chosen[:, :-1] - returns) * counted).sum() / counted.sum()


def traced_returns(windows: Moment, values: Float[Array, "batch moment"], settings: Qmix) -> Float[Array, "batch time"]:
    """Returns G_t of every step but the window's last moment, whose value they end in."""

    def back(following: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward, alive, next_value = now
        total = reward + settings.discount * alive * ((1.0 - settings.trace) * next_value + settings.trace * following)
        return total, total

    alive = 1.0 - windows.terminated.astype(jnp.float32)
    steps = (windows.reward[:, :-1], alive[:, :-1], values[:, 1:])
    _, returns = jax.lax.scan(back, values[:, -1], jax.tree.map(jnp.transpose, steps), reverse=True)
    return returns.T


def _pick(utilities: Float[Array, "*batch agent action"], actions: Int[Array, "*batch agent"]) -> Float[Array, "*batch agent"]:
    return jnp.take_along_axis(utilities, actions[..., None], axis=-1)[..., 0]
