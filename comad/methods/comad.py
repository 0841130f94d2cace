"""COMAD: continual offline multi-agent skill discovery by skill partition and re-use."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from comad.methods import omiga
from comad.methods.base import Logs
from comad.methods.library import Library, Opening, Reuse, admit, calibrate, log_odds, mean_log_odds, reusability
from comad.methods.omiga import Critics, acting, bounded, masked_mean, squared_distance
from comad.networks import density, skills
from comad.networks.density import DensityTrunk, density_head
from comad.networks.heads import create_heads, pick, put
from comad.networks.layers import Draws, Mlp, initialize
from comad.networks.policy import ActionHead, Trunk
from comad.networks.skills import PosteriorTrunk, skill_head
from comad.types import Actions, Batch, PRNGKey, Spec, Stream, Tokens


class Head(eqx.Module):
    """One family of skills: how they are recognized with hindsight, inferred from one's own history, and carried out."""

    policy: ActionHead
    prior: Mlp
    posterior: Mlp


class Actor(eqx.Module):
    """The policy's side: trunks that all heads share, and a head or a stack of them."""

    trunk: Trunk
    posterior: PosteriorTrunk
    head: Head


class Familiarity(eqx.Module):
    """The density estimator: its trunk, and a head or a stack of them."""

    trunk: DensityTrunk
    head: Mlp


class Learned(eqx.Module):
    """All that gradients move, in four groups with an optimizer each."""

    actor: Actor
    familiarity: Familiarity
    critic: tuple[Any, Any]
    """Q and mixer."""
    value: Any
    """V."""


class ComadState(eqx.Module):
    """Everything a run of COMAD is."""

    learned: Learned
    """With heads stacked at full capacity."""
    targets: Critics
    optimizers: tuple[Any, ...]
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
class Comad:
    """Finds skills in mixed data with an auto-encoder, keeps one head per family of skills, and lets old skills guide new ones.

    For each task: re-use the most familiar head or open one; then learn, in the first half by the plain and in the second half by the
    skill-augmented objective (z from the posterior q, z_k from each head's prior p_k, Delta_k from the density estimator):

        L = - exp(w A / alpha) log pi(a | history, z) + KL(q || p) + anchor |F - F_1|^2
        L = - exp(w A / alpha + sum_k Delta_k log pi_k(a | history, z_k)) log pi(a | history, z) + ...

    Xiao et al., "Offline Multi-agent Continual Cooperation via Skill Partition and Reuse", ICML 2026.
    """

    learning_rate: float = 5e-4
    """Of AdamW, for all groups."""
    weight_decay: float = 1e-3
    """Of AdamW."""
    clip: float = 1.0
    """Largest norm of each group's gradient."""
    discount: float = 0.99
    """Worth of a reward one step later."""
    target_rate: float = 0.005
    """Share of the online critics that flows into their targets per update."""
    temperature: float = 10.0
    """Alpha: how closely to follow what was recorded."""
    skill: skills.Kind = "gaussian"
    """What a skill is; "none" is the ablation without skills."""
    skill_size: int = 16
    """Dimensions of a skill, or classes."""
    kl_weight: float = 1.0
    """How strongly prior and posterior are drawn together."""
    kl_into_posterior: bool = True
    """Whether the posterior gives way too; if not, it is free to copy the action into the skill."""
    anchor: float = 500.0
    """How strongly the trunks are held where they were after the first task."""
    noise: float = 0.1
    """Sigma: spread of the noise from which the density estimator tells recorded states."""
    expand: bool = True
    """Whether heads may be opened after the first; without is an ablation."""
    opening: Opening = "absolute"
    """How it is decided whether a head is familiar enough with a task to be used again."""
    threshold: float | None = None
    """For "absolute": d0; by default the stream's."""
    ratio: float = 0.9
    """For "relative": how near to its own data, measured from its noise, a head must find the new data."""
    reuse: Reuse = "ratio"
    """How old skills are weighed; "uniform" is the ablation without Delta."""
    stage_two: bool = True
    """Whether old skills guide new ones in the second half of a task."""
    live_guidance: bool = False
    """Let the policies guide as they are now, instead of as they were when stage 2 began."""
    critic_jolt: float = 0.01
    """How far each critic network is moved at the start of a task."""
    recurrent: bool = True
    """Whether agents remember."""
    greedy: bool = False
    """Take the likeliest skill and action instead of drawing them."""

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> ComadState:
        """Fresh networks with room for a head per task."""
        trunk_key, head_key, familiar_key, critic_key = jax.random.split(key, 4)
        spec, capacity = specs[0], len(stream.tasks)
        trunk, posterior, familiarity = initialize(partial(self.make_trunks, spec=spec), trunk_key)
        critics = initialize(partial(Critics.create, spec=spec), critic_key)
        learned = Learned(
            actor=Actor(trunk, posterior, create_heads(partial(self.make_head, spec=spec), head_key, capacity)),
            familiarity=Familiarity(familiarity, create_heads(density_head, familiar_key, capacity)),
            critic=(critics.q, critics.mixer),
            value=critics.v,
        )
        return ComadState(
            learned=learned,
            targets=critics,
            optimizers=self.fresh_optimizers(self.with_head(learned, 0)),
            anchor=(trunk, familiarity),
            snapshot=learned.actor,
            library=Library.create(capacity, len(stream.tasks)),
            task=jnp.int32(0),
            update=jnp.int32(0),
            updates=updates,
            threshold=stream.threshold if self.threshold is None else self.threshold,
        )

    def make_trunks(self, draws: Draws, spec: Spec) -> tuple[Trunk, PosteriorTrunk, DensityTrunk]:
        """What all heads share."""
        return Trunk.create(draws, spec, self.recurrent), PosteriorTrunk.create(draws, spec), DensityTrunk.create(draws, spec)

    def make_head(self, draws: Draws, spec: Spec) -> Head:
        """One family of skills."""
        size = 0 if self.skill == "none" else self.skill_size
        policy = ActionHead.create(draws, spec, size)
        return Head(policy, skill_head(draws, self.skill, self.skill_size), skill_head(draws, self.skill, self.skill_size))

    def begin(self, state: ComadState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> ComadState:
        """Re-use or open a head, jolt the critics, forget the optimizers' momentum."""
        familiarity = state.learned.familiarity
        scores = mean_log_odds(familiarity.trunk, familiarity.head, sample)
        library = admit(state.library, task, scores, self.opening, state.threshold, self.ratio, self.expand)
        norm = jnp.where(task > 0, self.critic_jolt, 0.0)
        critics = omiga.unsettle(Critics(*state.learned.critic, state.learned.value), norm, key)
        learned = replace(state.learned, critic=(critics.q, critics.mixer), value=critics.v)
        return replace(
            state,
            learned=learned,
            targets=critics,
            optimizers=self.fresh_optimizers(self.with_head(learned, library.active)),
            library=library,
            task=jnp.asarray(task, jnp.int32),
            update=jnp.int32(0),
        )

    def update(self, state: ComadState, batch: Batch, key: PRNGKey) -> tuple[ComadState, Logs]:
        """One step of all four groups; of the heads only the active one moves."""
        loss_key, guide_key = jax.random.split(key)
        second_stage = (state.task > 0) & (state.update >= state.updates // 2) & self.stage_two
        entering = state.update == state.updates // 2
        snapshot = jax.tree.map(lambda kept, now: jnp.where(entering, now, kept), state.snapshot, state.learned.actor)
        state = replace(state, snapshot=snapshot)
        guidance = jax.lax.cond(
            second_stage, lambda: self.guide(state, batch, guide_key), lambda: jnp.zeros((*batch.step.shape, batch.actions.shape[2]))
        )
        learned = self.with_head(state.learned, state.library.active)
        gradient, logs = jax.grad(self.loss, has_aux=True)(learned, state, batch, guidance, loss_key)
        moved, optimizers = self.move(learned, gradient, state.optimizers)
        targets = optax.incremental_update(Critics(*moved.critic, moved.value), state.targets, self.target_rate)
        learned = self.return_head(state.learned, moved, state.library.active)
        return replace(state, learned=learned, targets=targets, optimizers=optimizers, update=state.update + 1), logs

    def loss(
        self, learned: Learned, state: ComadState, batch: Batch, guidance: Float[Array, "row time agent"], key: PRNGKey
    ) -> tuple[Float[Array, ""], Logs]:
        """The sum of all objectives; no two of them share a weight."""
        skill_key, prior_key, noise_key = jax.random.split(key, 3)
        critics = Critics(*learned.critic, learned.value)
        q_loss, v_loss, exponent = omiga.critic_losses(critics, state.targets, batch, self.temperature, self.discount)

        actor, valid = learned.actor, acting(batch)
        rows, agents = batch.step.shape[0], valid.shape[-1]
        view, _ = actor.trunk(actor.trunk.start(rows, agents), batch.tokens, batch.first)
        prior = actor.head.prior(view.history)
        posterior = actor.head.posterior(actor.posterior(batch.state, batch.actions))
        skill = skills.draw(self.skill, posterior, skill_key)
        log_probability = actor.head.policy.log_probability(view, skill, batch.available, batch.actions)
        weight = jnp.exp(bounded(exponent + guidance))
        policy_loss = -masked_mean(weight * log_probability, valid)
        kl = skills.divergence(self.skill, posterior if self.kl_into_posterior else jax.lax.stop_gradient(posterior), prior)
        kl_loss = masked_mean(kl, valid)

        odds, noisy_odds = (
            learned.familiarity.head(learned.familiarity.trunk(shown))[..., 0]
            for shown in (batch.state, density.perturb(batch.state, self.noise, noise_key))
        )
        density_loss = masked_mean(density.contrast(odds, noisy_odds), batch.present)

        held = self.anchor * (state.task > 0)
        drift = squared_distance(actor.trunk, state.anchor[0])
        density_drift = squared_distance(learned.familiarity.trunk, state.anchor[1])
        own = actor.head.policy.log_probability(view, skills.draw(self.skill, prior, prior_key), batch.available, batch.actions)
        logs = {
            "q_loss": q_loss,
            "v_loss": v_loss,
            "policy_loss": policy_loss,
            "kl": kl_loss,
            "density_loss": density_loss,
            "log_odds": masked_mean(odds, batch.present),
            "drift": drift,
            "weight": masked_mean(weight, valid),
            "weight_spread": jnp.sqrt(masked_mean(jnp.square(weight), valid) - jnp.square(masked_mean(weight, valid)) + 1e-12),
            "log_probability_posterior": masked_mean(log_probability, valid),
            "log_probability_prior": masked_mean(jax.lax.stop_gradient(own), valid),
        }
        total = q_loss + v_loss + policy_loss + self.kl_weight * kl_loss + density_loss + held * (drift + density_drift)
        return total, jax.lax.stop_gradient(logs)

    def guide(self, state: ComadState, batch: Batch, key: PRNGKey) -> Float[Array, "row time agent"]:
        """What old skills say of the recorded actions (the sum in Eq. 10), with every head's skill from its own prior."""
        actor = state.learned.actor if self.live_guidance else state.snapshot
        rows, agents = batch.step.shape[0], batch.actions.shape[2]
        view, _ = actor.trunk(actor.trunk.start(rows, agents), batch.tokens, batch.first)
        keys = jax.random.split(key, len(state.library.own_score))

        def say(head: Head, head_key: PRNGKey) -> Array:
            skill = skills.draw(self.skill, head.prior(view.history), head_key)
            return head.policy.log_probability(view, skill, batch.available, batch.actions)

        said = jax.vmap(say)(actor.head, keys)
        familiarity = state.learned.familiarity
        weights = reusability(state.library, log_odds(familiarity.trunk, familiarity.head, batch.state), self.reuse)
        return (weights[..., None] * said).sum(0)

    def finish(self, state: ComadState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> ComadState:
        """Note how sure the head is of its own data; after the first task, drop the anchor."""
        familiarity = state.learned.familiarity
        library = calibrate(state.library, familiarity.trunk, familiarity.head, sample, self.noise, key)
        now = (state.learned.actor.trunk, familiarity.trunk)
        anchor = jax.tree.map(lambda kept, new: jnp.where(task == 0, new, kept), state.anchor, now)
        return replace(state, library=library, anchor=anchor)

    def route(self, state: ComadState, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """The head that finds a task's data most familiar."""
        familiarity = state.learned.familiarity
        scores = mean_log_odds(familiarity.trunk, familiarity.head, sample)
        return jnp.where(state.library.opened, scores, -jnp.inf).argmax()

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
        key: PRNGKey,
    ) -> tuple[Actions, Float[Array, "agent size"]]:
        """A skill from one's own history, an action from skill and history."""
        skill_key, action_key = jax.random.split(key)
        actor = state.learned.actor
        moment = jax.tree.map(lambda leaf: leaf[None, None], tokens)
        view, following = actor.trunk(memory[None], moment, jnp.zeros((1, 1), bool))
        chosen, possible = pick(actor.head, head), available[None, None]
        prior = chosen.prior(view.history)
        if self.greedy:
            actions = chosen.policy.mode(view, skills.likeliest(self.skill, prior), possible)
        else:
            actions = chosen.policy.sample(view, skills.draw(self.skill, prior, skill_key), possible, action_key)
        return actions[0, 0], following[0]

    def optimizer(self) -> optax.GradientTransformation:
        """AdamW with a clipped gradient."""
        return optax.chain(optax.clip_by_global_norm(self.clip), optax.adamw(self.learning_rate, weight_decay=self.weight_decay))

    def fresh_optimizers(self, learned: Learned) -> tuple[Any, ...]:
        """Optimizers without momentum, one per group."""
        return tuple(self.optimizer().init(group) for group in groups(learned))

    def move(self, learned: Learned, gradient: Learned, optimizers: tuple[Any, ...]) -> tuple[Learned, tuple[Any, ...]]:
        """Every group one step along its own gradient."""
        steps = [
            self.optimizer().update(slope, optimizer, group)
            for slope, optimizer, group in zip(groups(gradient), optimizers, groups(learned), strict=True)
        ]
        moved = Learned(*(optax.apply_updates(group, change) for group, (change, _) in zip(groups(learned), steps, strict=True)))
        return moved, tuple(optimizer for _, optimizer in steps)

    def with_head(self, learned: Learned, head: Int[Array, ""] | int) -> Learned:
        """What is learned with one head in place of the stack, so that nothing can touch the others."""
        actor = replace(learned.actor, head=pick(learned.actor.head, head))
        return replace(learned, actor=actor, familiarity=replace(learned.familiarity, head=pick(learned.familiarity.head, head)))

    def return_head(self, learned: Learned, moved: Learned, head: Int[Array, ""]) -> Learned:
        """What was moved, with its head back in the stack."""
        actor = replace(moved.actor, head=put(learned.actor.head, head, moved.actor.head))
        familiarity = replace(moved.familiarity, head=put(learned.familiarity.head, head, moved.familiarity.head))
        return replace(moved, actor=actor, familiarity=familiarity)


def groups(learned: Learned) -> tuple[Any, ...]:
    """The parts that have an optimizer each."""
    return learned.actor, learned.familiarity, learned.critic, learned.value
