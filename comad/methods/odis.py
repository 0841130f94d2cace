"""ODIS: skills that all tasks share are discovered first, then a coordinator learns by conservative Q-learning which to use when.

Discovery, an auto-encoder with a categorical skill y from the whole situation and what everybody does in it:

    L = - log pi(a | history, y) + kl_weight * KL(y || uniform)

Coordination, with discovery frozen; k is the skill that discovery sees in what was recorded, Q_i(k) the coordinator's value of it:

    L = (r + discount Qtot'(next, best k) - Qtot(k))^2 + conservatism * (max Qtot - Qtot(k)) + consistency * CE(own view, k)

Zhang et al., "Discovering Generalizable Multi-agent Coordination Skills from Multi-task Offline Data", 2023. In a stream (ODIS-FT), skills
are discovered in the first task's data, and the coordinator is fine-tuned on task after task.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad.continual.method import Logs
from comad.continual.omiga import acting, jolt, masked_mean
from comad.continual.schedules import DataSchedule, InTurn, OwnTask
from comad.methods import descent, single
from comad.networks.attention import WIDTH
from comad.networks.layers import Draws, Linear, initialize
from comad.networks.mixer import AttentionMixer, Situation
from comad.networks.policy import ActionHead, gather_last
from comad.networks.transformer import Observer
from comad.ranges import LearningRate, Scale, Share, Size, Spread, Strength, Updates, ranged
from comad.tokens import in_action
from comad.types import Actions, Batch, PRNGKey, Spec, Stream, Tokens


class Discovery(eqx.Module):
    """What finds skills in recorded data, and acts by them."""

    situation: Situation
    classifier: Linear
    """From a summary, of the situation or of an agent's own view, to skills."""
    observer: Observer
    skill: Linear
    policy: ActionHead
    spec: Spec = eqx.field(static=True)

    @classmethod
    def create(cls, draws: Draws, spec: Spec, skills: int) -> "Discovery":
        """Fresh weights."""
        situation = Situation.create(draws, spec, in_action=True)
        classifier, observer = Linear.create(draws, WIDTH, skills), Observer.create(draws, spec)
        return cls(situation, classifier, observer, Linear.create(draws, skills, WIDTH), ActionHead.create(draws, spec, WIDTH, ()), spec)

    def find(self, batch: Batch) -> Float[Array, "row time agent skill"]:
        """Logits of the skill that each agent shows at each moment."""
        return self.classifier(self.situation(in_action(batch.state, batch.actions, self.spec))[1])


class Coordinator(eqx.Module):
    """What values skills."""

    observer: Observer
    values: Linear
    mixer: AttentionMixer

    @classmethod
    def create(cls, draws: Draws, spec: Spec, skills: int) -> "Coordinator":
        """Fresh weights."""
        return cls(Observer.create(draws, spec), Linear.create(draws, WIDTH, skills), AttentionMixer.create(draws, spec))


class OdisState(eqx.Module):
    """Everything that ODIS is."""

    discovery: Discovery
    coordinator: Coordinator
    target: Coordinator
    optimizers: tuple[descent.Optimizer, descent.Optimizer]
    """Of discovery and of the coordinator."""
    task: Int[Array, ""]
    update: Int[Array, ""]
    """Updates made on this task."""
    updates: int = eqx.field(static=True)
    num_tasks: int = eqx.field(static=True)


Memory = tuple[Float[Array, "agent width"], Float[Array, "agent width"]]


@dataclass(frozen=True)
@ranged
class Odis:
    """Discovers discrete skills in the first task's data, then only learns anew which skill to use when (ODIS-FT)."""

    multi_task: bool = False
    """Learn all tasks at once, in turn, as originally published: discovery in the first half of all updates."""
    discovery_share: Share = 0.5
    """How much of the first task's updates (of all tasks' at once) go into discovery."""
    skills: Size = 3
    """How many there are."""
    learning_rate: LearningRate = 5e-4
    """Of Adam."""
    clip: Scale = 10.0
    """Largest norm of a gradient."""
    discount: Share = 0.99
    """Worth of a reward one step later."""
    kl_weight: Strength = 0.001
    """How strongly skills are kept equally likely."""
    conservatism: Strength = 5.0
    """How strongly values of skills that were not shown are held down."""
    consistency: Strength = 5.0
    """How strongly an agent's own view is made to tell the skill that the situation tells."""
    target_every: Updates = 80
    """Updates after which the target network is replaced."""
    critic_jolt: Spread = 0.01
    """How far the mixer is moved at the start of a task."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> OdisState:
        """Fresh networks."""

        def make(draws: Draws) -> tuple[Discovery, Coordinator]:
            return Discovery.create(draws, specs[0], self.skills), Coordinator.create(draws, specs[0], self.skills)

        discovery, coordinator = initialize(make, key)
        optimizers = descent.fresh(discovery), descent.fresh(coordinator)
        zero = jnp.int32(0)
        return OdisState(discovery, coordinator, coordinator, optimizers, zero, zero, updates, len(stream.tasks))

    @property
    def data(self) -> DataSchedule:
        """Each task's own data, or that of all tasks in turn."""
        return InTurn() if self.multi_task else OwnTask()

    def begin(self, state: OdisState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> OdisState:
        """Jolt the mixer, forget the optimizer's momentum; where tasks are learned at once, none begins."""
        state = replace(state, task=jnp.asarray(task, jnp.int32), update=jnp.int32(0))
        if self.multi_task:
            return state
        mixer = jolt(state.coordinator.mixer, jnp.where(task > 0, self.critic_jolt, 0.0), key)
        coordinator = replace(state.coordinator, mixer=mixer)
        return replace(state, coordinator=coordinator, target=coordinator, optimizers=jax.tree.map(jnp.zeros_like, state.optimizers))

    def update(self, state: OdisState, batch: Batch, key: PRNGKey) -> tuple[OdisState, Logs]:
        """One gradient step of discovery or, once that is over, of the coordinator."""
        total = state.updates * (state.num_tasks if self.multi_task else 1)
        discovering = state.task * state.updates + state.update < self.discovery_share * total
        state, logs = jax.lax.cond(discovering, self.discover, self.coordinate, state, batch, key)
        return replace(state, update=state.update + 1), {"discovering": discovering.astype(float), **logs}

    def discover(self, state: OdisState, batch: Batch, key: PRNGKey) -> tuple[OdisState, Logs]:
        """Learn skills by which recorded actions can be told."""
        (_, logs), gradient = jax.value_and_grad(self.discovery_loss, has_aux=True)(state.discovery, batch, key)
        gradient, norm = descent.clip(gradient, self.clip)
        discovery, optimizer = descent.descend(state.discovery, gradient, state.optimizers[0], self.learning_rate, 0.0)
        logs = {**dict.fromkeys(("td_loss", "conservative_loss", "consistency_loss", "value"), jnp.float32(0.0)), **logs, "gradient": norm}
        return replace(state, discovery=discovery, optimizers=(optimizer, state.optimizers[1])), logs

    def discovery_loss(self, discovery: Discovery, batch: Batch, key: PRNGKey) -> tuple[Float[Array, ""], Logs]:
        """Reconstruction of actions through a soft skill, and its distance from a uniform one."""
        logits, valid = discovery.find(batch), acting(batch)
        gumbel = jax.random.gumbel(key, (logits.size,)).reshape(logits.shape)
        log_skill = jax.nn.log_softmax(logits + gumbel)
        skill = jnp.exp(log_skill)
        # The mean over skills, not their sum, is part of the original.
        kl = (skill * (log_skill + jnp.log(self.skills))).mean(-1)
        told = discovery.policy.log_probability(discovery.observer.look(batch), discovery.skill(skill), batch)
        loss, kl_loss = -masked_mean(told, valid), masked_mean(kl, valid)
        return loss + self.kl_weight * kl_loss, {"policy_loss": loss, "kl": kl_loss}

    def coordinate(self, state: OdisState, batch: Batch, key: PRNGKey) -> tuple[OdisState, Logs]:
        """Learn which skill to use when."""
        gradient, logs = jax.grad(self.coordination_loss, has_aux=True)(state.coordinator, state, batch)
        gradient, norm = descent.clip(gradient, self.clip)
        coordinator, optimizer = descent.descend(state.coordinator, gradient, state.optimizers[1], self.learning_rate, 0.0)
        renewed = (state.update + 1) % self.target_every == 0
        target = jax.tree.map(lambda old, new: jnp.where(renewed, new, old), state.target, coordinator)
        logs = {**dict.fromkeys(("policy_loss", "kl"), jnp.float32(0.0)), **logs, "gradient": norm}
        return replace(state, coordinator=coordinator, target=target, optimizers=(state.optimizers[0], optimizer)), logs

    def coordination_loss(self, coordinator: Coordinator, state: OdisState, batch: Batch) -> tuple[Float[Array, ""], Logs]:
        """Double Q-learning on the skills that were shown, conservative, and consistent with an agent's own view."""
        shown = jax.lax.stop_gradient(state.discovery.find(batch).argmax(-1))
        view = coordinator.observer.look(batch).history
        values, mixing = coordinator.values(view), coordinator.mixer(batch.state)
        target_values = state.target.values(state.target.observer.look(batch).history)
        best = jax.lax.stop_gradient(gather_last(target_values, values.argmax(-1)))
        # What follows a step is the next moment of its row; a row's last moment is never a step.
        following = jnp.roll(jax.lax.stop_gradient(state.target.mixer(batch.state)(best)), -1, axis=1)
        goal = batch.reward + self.discount * jnp.where(batch.terminated, 0.0, following)
        team_value = mixing(gather_last(values, shown))
        td_loss = masked_mean(jnp.square(team_value - goal), batch.step)
        conservative = masked_mean(mixing(values.max(-1)) - team_value, batch.step)
        own_guess = jax.nn.log_softmax(state.discovery.classifier(view))
        consistency = -masked_mean(gather_last(own_guess, shown), acting(batch))
        loss = td_loss + self.conservatism * conservative + self.consistency * consistency
        logs = {"td_loss": td_loss, "conservative_loss": conservative, "consistency_loss": consistency}
        return loss, {**logs, "value": masked_mean(team_value, batch.step)}

    def start(self, state: OdisState, num_agents: int) -> Memory:
        """Empty memories of the coordinator and of the policy."""
        empty = state.coordinator.observer.transformer.start(num_agents)
        return empty, empty

    def act(
        self,
        state: OdisState,
        memory: Memory,
        tokens: Tokens,
        available: Bool[Array, "agent action"],
        head: Int[Array, ""],
        greedy: Bool[Array, ""],
        key: PRNGKey,
    ) -> tuple[Actions, Memory]:
        """The skill of highest value, and an action by it: the likeliest if greedy, else drawn."""
        moment = jax.tree.map(lambda leaf: leaf[None, None], tokens)
        goes_on = jnp.zeros((1, 1), bool)
        view, coordinating = state.coordinator.observer(memory[0][None], moment, goes_on)
        skill = jax.nn.one_hot(state.coordinator.values(view.history).argmax(-1), self.skills)
        seen, acting_memory = state.discovery.observer(memory[1][None], moment, goes_on)
        policy, by, possible = state.discovery.policy, state.discovery.skill(skill), available[None, None]
        actions = jnp.where(greedy, policy.mode(seen, by, possible), policy.sample(seen, by, possible, key))
        return actions[0, 0], (coordinating[0], acting_memory[0])

    finish = single.finish
    route = single.route
    describe = single.describe
