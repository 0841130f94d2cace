"""COMAD: continual offline multi-agent skill discovery by skill partition and re-use."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from comad.continual import omiga
from comad.continual.method import Logs, left_to_the_world, unless_told
from comad.continual.omiga import Critics, acting, bounded, masked_mean
from comad.continual.schedules import DataSchedule, OwnTask
from comad.methods import descent
from comad.methods.learned import Actor, Learned, move
from comad.methods.library import (
    Library,
    Opening,
    Reuse,
    Routing,
    admit,
    calibrate,
    consulted,
    log_odds,
    mean_log_odds,
    observe,
    recognize,
    reusability,
)
from comad.methods.objectives import familiarize, imitate, play
from comad.networks import skills
from comad.networks.density import DensityTrunk
from comad.networks.heads import pick
from comad.networks.policy import Trunk
from comad.ranges import LearningRate, Nats, Scale, Share, Size, SizeOrZero, Spread, Strength, ranged
from comad.settings import LATER
from comad.types import Actions, Batch, PRNGKey, Spec, StateTokens, Stream, Tokens


class ComadState(eqx.Module):
    """Everything a run of COMAD is."""

    learned: Learned
    """With heads stacked at full capacity."""
    targets: Critics
    optimizer: descent.Optimizer
    """Of all that is learned, with the active head."""
    anchor: tuple[Trunk, DensityTrunk]
    """The trunks as they were after the first task."""
    snapshot: Actor
    """The policies as they were when stage 2 began."""
    library: Library
    task: Int[Array, ""]
    update: Int[Array, ""]
    """Updates made on this task."""
    updates: int = eqx.field(static=True)
    threshold: float = eqx.field(static=True)


@dataclass(frozen=True)
@ranged
class Comad:
    """Finds skills in mixed data with an auto-encoder, keeps one head per family of skills, and lets old skills guide new ones.

    For each task: re-use the most familiar head or open one; then learn, in the first half by the plain and in the second half by the
    skill-augmented objective (z from the posterior q, z_k from each head's prior p_k, Delta_k from the density estimator):

        L = - exp(w A / alpha) log pi(a | history, z) + KL(q || p) + anchor |F - F_1|^2
        L = - exp(w A / alpha + sum_k Delta_k log pi_k(a | history, z_k)) log pi(a | history, z) + ...

    Xiao et al., "Offline Multi-agent Continual Cooperation via Skill Partition and Reuse", ICML 2026.
    """

    learning_rate: LearningRate = 5e-4
    """Of AdamW, for all groups."""
    weight_decay: Share = 1e-3
    """Of AdamW."""
    clip: Scale = 1.0
    """Largest norm of each group's gradient."""
    discount: Share = 0.99
    """Worth of a reward one step later."""
    target_rate: Share = 0.005
    """Share of the online critics that flows into their targets per update."""
    temperature: Scale = 10.0
    """Alpha: how closely to follow what was recorded."""
    skill: skills.Kind = "gaussian"
    """What a skill is; "none" is the ablation without skills."""
    skill_size: Size = 16
    """Dimensions of a skill, or classes."""
    kl_weight: Strength = 1.0
    """How strongly prior and posterior are drawn together."""
    kl_into_posterior: bool = True
    """Whether the posterior gives way too; if not, it is free to copy the action into the skill."""
    anchor: Strength = 500.0
    """How strongly the trunks are held where they were after the first task."""
    freeze_density: bool = True
    """Keep the density estimator's trunk exactly as the first task left it; otherwise it is only held like the policy's."""
    noise: Spread = 0.1
    """Sigma: spread of the noise from which the density estimator tells recorded states."""
    expand: bool = True
    """Whether heads may be opened after the first; without is an ablation."""
    opening: Opening = "absolute"
    """How it is decided whether a head is familiar enough with a task to be used again."""
    threshold: Nats | None = None
    """For "absolute": d0; by default the stream's."""
    ratio: Share = 0.8
    """For "relative": how much like its own data, and unlike noise, a head must find the new data."""
    routing: Routing = "likeness"
    """Which head plays a task: the one to which its data is most like its own, or, as published, the one that scores it highest."""
    reuse: Reuse = "ratio"
    """How old skills are weighed; "uniform" is the ablation without Delta."""
    stage_two: bool = True
    """Whether old skills guide new ones in the second half of a task."""
    live_guidance: bool = False
    """Let the policies guide as they are now, instead of as they were when stage 2 began."""
    guides: SizeOrZero = field(default=0, metadata={LATER: 0})
    """Most heads that are heard in stage 2: the one that learns and those most familiar with the task when it began; 0 hears all."""
    hears_itself: Literal["numbered", "always", "never"] = field(default="numbered", metadata={LATER: "numbered"})
    """Whether the head that learns is among those that guide, as in the published sum; by default where actions are numbered. Of vectors
    it would learn best what it knows best: those near the middle of its Gaussian."""
    critic_jolt: Spread = 0.01
    """How far each critic network is moved at the start of a task."""
    recurrent: bool | None = left_to_the_world()
    """Whether agents remember; by default they do, but not where actions are vectors and a moment tells how everything moves."""

    data: ClassVar[DataSchedule] = OwnTask()

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> ComadState:
        """Fresh networks with room for a head per task."""
        capacity = len(stream.tasks)
        learned = Learned.create(key, specs[0], capacity, self.skill, self.skill_size, unless_told(self, "recurrent", specs[0]))
        return ComadState(
            learned=learned,
            targets=learned.critics,
            optimizer=descent.fresh(learned.with_head(0)),
            anchor=learned.trunks,
            snapshot=learned.actor,
            library=Library.create(capacity, len(stream.tasks)),
            task=jnp.int32(0),
            update=jnp.int32(0),
            updates=updates,
            threshold=stream.threshold if self.threshold is None else self.threshold,
        )

    def begin(self, state: ComadState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> ComadState:
        """Re-use or open a head, jolt the critics, forget the optimizer's momentum."""
        familiarity = state.learned.familiarity
        scores = mean_log_odds(familiarity.trunk, familiarity.head, sample)
        library = admit(state.library, task, scores, self.opening, state.threshold, self.ratio, self.expand)
        critics = omiga.unsettle(state.learned.critics, jnp.where(task > 0, self.critic_jolt, 0.0), key)
        return replace(
            state,
            learned=state.learned.with_critics(critics),
            targets=critics,
            optimizer=jax.tree.map(jnp.zeros_like, state.optimizer),
            library=library,
            task=jnp.asarray(task, jnp.int32),
            update=jnp.int32(0),
        )

    def update(self, state: ComadState, batch: Batch, key: PRNGKey) -> tuple[ComadState, Logs]:
        """One step of all four groups; of the heads only the active one moves."""
        loss_key, guide_key = jax.random.split(key)
        half, now = state.updates // 2, batch.acted
        snapshot = jax.lax.cond(state.update == half, lambda: state.learned.actor, lambda: state.snapshot)
        state = replace(state, snapshot=snapshot)
        guidance = jax.lax.cond(
            (state.task > 0) & (state.update >= half) & self.stage_two,
            lambda: self.guide(state, now, guide_key),
            lambda: jnp.zeros(now.state.agent_present.shape),
        )
        active = state.learned.with_head(state.library.active)
        gradient, logs = jax.grad(self.loss, has_aux=True)(active, state, batch, guidance, loss_key)
        gradient, drift = self.hold(gradient, active, state)
        moved, optimizer, norms = move(active, gradient, state.optimizer, self.clip, self.learning_rate, self.weight_decay)
        if self.freeze_density:
            # Without a gradient there is still weight decay.
            kept = jax.tree.map(partial(jnp.where, state.task > 0), active.familiarity.trunk, moved.familiarity.trunk)
            moved = moved.with_trunks(moved.actor.trunk, kept)
        targets = optax.incremental_update(moved.critics, state.targets, self.target_rate)
        learned = moved.with_stack(state.learned, state.library.active)
        logs = {**logs, "drift": drift, **norms}
        library = observe(state.library, logs["log_odds"], logs["log_odds_noise"])
        return replace(state, learned=learned, targets=targets, optimizer=optimizer, library=library, update=state.update + 1), logs

    def loss(
        self, learned: Learned, state: ComadState, batch: Batch, guidance: Float[Array, "row time agent"], key: PRNGKey
    ) -> tuple[Float[Array, ""], Logs]:
        """The sum of all objectives but the anchor; no two of them share a weight."""
        skill_key, noise_key = jax.random.split(key)
        q_loss, v_loss, exponent = omiga.critic_losses(learned.critics, state.targets, batch, self.temperature, self.discount)
        now = batch.acted
        imitation = imitate(learned.actor, now, self.skill, self.kl_into_posterior, skill_key)
        weight, valid = jnp.exp(bounded(exponent + guidance)), acting(now)
        policy_loss = -masked_mean(weight * imitation.log_probability, valid)
        kl_loss = masked_mean(imitation.divergence, valid)
        density_loss, familiarity = familiarize(learned.familiarity, batch, self.noise, noise_key)
        losses = {"q_loss": q_loss, "v_loss": v_loss, "policy_loss": policy_loss, "kl": kl_loss}
        logs = {**losses, **familiarity, **omiga.weight_logs(weight, now), **imitation.logs}
        return q_loss + v_loss + policy_loss + self.kl_weight * kl_loss + density_loss, jax.lax.stop_gradient(logs)

    def hold(self, gradient: Learned, active: Learned, state: ComadState) -> tuple[Learned, Float[Array, ""]]:
        """Add the anchor's gradient (Eq. 8) from the second task on; also how far the actor's trunk has drifted."""
        strength = self.anchor * (state.task > 0)
        trunk, drift = descent.pull(gradient.actor.trunk, active.actor.trunk, state.anchor[0], strength)
        density_trunk, _ = descent.pull(gradient.familiarity.trunk, active.familiarity.trunk, state.anchor[1], strength)
        if self.freeze_density:
            density_trunk = jax.tree.map(lambda slope: jnp.where(state.task > 0, 0.0, slope), density_trunk)
        return gradient.with_trunks(trunk, density_trunk), drift

    def guide(self, state: ComadState, batch: Batch, key: PRNGKey) -> Float[Array, "row time agent"]:
        """What old skills say of the recorded actions (the sum in Eq. 10), with every head's skill from its own prior."""
        actor = state.learned.actor if self.live_guidance else state.snapshot
        view = actor.trunk.look(batch)
        familiarity = state.learned.familiarity
        heads, densities, chosen = actor.head, familiarity.head, None
        if 0 < self.guides < len(state.library.scores):
            chosen = consulted(state.library, self.guides)
            heads, densities = jax.tree.map(lambda leaf: leaf[chosen], (heads, densities))

        priors = jax.vmap(lambda head: head.prior(view.history))(heads)
        drawn = skills.draw(self.skill, priors, key)
        said = jax.vmap(lambda head, skill: head.policy.relative_log_probability(view, skill, batch))(heads, drawn)
        # Heads stand last while what was made of single moments is handed around.
        odds = batch.once(lambda moments: jnp.moveaxis(log_odds(familiarity.trunk, densities, moments.state), 0, -1))
        weights = reusability(state.library, jnp.moveaxis(odds, -1, 0), self.reuse, chosen)
        if not self.heard_itself(batch):
            itself = state.library.active == (jnp.arange(len(weights)) if chosen is None else chosen)
            weights = jnp.where(itself.reshape(-1, 1, 1), 0.0, weights)
        return (weights[..., None] * said).sum(0)

    def heard_itself(self, batch: Batch) -> bool:
        """Whether the head that learns has a say in how recorded actions weigh."""
        return not batch.continuous if self.hears_itself == "numbered" else self.hears_itself == "always"

    def finish(self, state: ComadState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> ComadState:
        """Note how sure the head is of its own data; after the first task, drop the anchor."""
        familiarity = state.learned.familiarity
        library = calibrate(state.library, familiarity.trunk, familiarity.head, sample, self.noise, key)
        anchor = jax.tree.map(lambda kept, new: jnp.where(task == 0, new, kept), state.anchor, state.learned.trunks)
        return replace(state, library=library, anchor=anchor)

    def route(self, state: ComadState, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """The head that finds a task's data most familiar (Algorithm 3)."""
        familiarity = state.learned.familiarity
        return recognize(state.library, mean_log_odds(familiarity.trunk, familiarity.head, sample), self.routing)

    def recognize(self, state: ComadState, situations: StateTokens) -> Int[Array, ""]:
        """The head that finds situations most familiar."""
        odds = log_odds(state.learned.familiarity.trunk, state.learned.familiarity.head, situations)
        return recognize(state.library, odds.reshape(len(odds), -1).mean(-1), self.routing)

    def familiarity(self, state: ComadState, situations: StateTokens) -> Float[Array, "head *batch"]:
        """How familiar situations are to every head; minus infinity to those that were never opened."""
        odds = log_odds(state.learned.familiarity.trunk, state.learned.familiarity.head, situations)
        return jnp.where(state.library.opened.reshape(-1, *[1] * (odds.ndim - 1)), odds, -jnp.inf)

    def inferred_skills(self, state: ComadState, batch: Batch, head: Int[Array, ""]) -> Float[Array, "row time agent size"]:
        """Means of a head's prior p(z | history) at every recorded moment; of classes, their probabilities."""
        actor = state.learned.actor
        prior = pick(actor.head, head).prior(actor.trunk.look(batch).history)
        return skills.expected(self.skill, prior)

    def reuse_weights(self, state: ComadState, situations: StateTokens) -> Float[Array, "head *batch"]:
        """Delta of every head (Eq. 9)."""
        odds = log_odds(state.learned.familiarity.trunk, state.learned.familiarity.head, situations)
        return reusability(state.library, odds, self.reuse)

    def describe(self, state: ComadState) -> dict[str, Array]:
        """How many heads there are and were before this task, which one learns, and the scores by which it was chosen."""
        library = state.library
        scores = {"scores": library.scores, "own_score": library.own_score, "noise_score": library.noise_score}
        return {**library.counts(state.task), **scores}

    def start(self, state: ComadState, num_agents: int) -> Float[Array, "agent size"]:
        """Empty memory."""
        return state.learned.actor.trunk.start(num_agents)

    def act(
        self,
        state: ComadState,
        memory: Float[Array, "agent size"],
        tokens: Tokens,
        available: Bool[Array, "agent action"],
        head: Int[Array, ""],
        greedy: Bool[Array, ""],
        key: PRNGKey,
    ) -> tuple[Actions, Float[Array, "agent size"]]:
        """A skill from one's own history, an action from skill and history; the likeliest if greedy, else drawn."""
        actor = state.learned.actor
        return play(replace(actor, head=pick(actor.head, head)), self.skill, memory, tokens, available, greedy, key)
