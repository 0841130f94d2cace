"""COMAD-plus: COMAD where its own data show it weak, with every departure a setting of its own."""

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from comad.continual import omiga
from comad.continual.method import Logs, hidden, left_to_the_world, unless_told, unnumbered
from comad.continual.omiga import Critics, acting, masked_mean
from comad.continual.schedules import DataSchedule, OwnTask
from comad.methods import descent
from comad.methods.acquaintance import Acquaintance, Strangers, odds_of
from comad.methods.bands import Bands, follow_share
from comad.methods.families import Inherited, PlusState, explanations, grow
from comad.methods.learned import Actor, Learned, family, move
from comad.methods.library import FOLLOWED, Library, admit
from comad.methods.objectives import familiarize, imitate, play
from comad.methods.weights import Doubted, Preference, followed, merit, weigh
from comad.networks import density, skills
from comad.networks.heads import create_heads, each, pick
from comad.networks.layers import initialize
from comad.ranges import LearningRate, Range, Scale, Share, Size, SizeOrZero, Spread, Strength, Updates, ranged
from comad.settings import LATER
from comad.tokens import draw_available
from comad.types import Actions, Batch, PRNGKey, Spec, StateTokens, Stream, Tokens

SMALLEST_SPREAD = 1e-4
"""Of advantages: below, they are rounding."""
SMALLEST_FIT = 0.1
"""In nats per action above chance: whoever explains its own task no better explains no other either."""
MEASURED = 10
"""Updates between two looks at where a family's situations lie."""


@dataclass(frozen=True)
@ranged
class ComadPlus:
    """Like COMAD, but a new family of skills grows from a copy of the most similar one, and weights know no units.

    Ten departures, each with the setting that takes it back:

    - an action weighs exp(A / (temperature spread(A)) + sharpness outcome), of mean one, with the outcome of its whole episode in standard
      deviations, as sharply as leaves a share of the episodes effective; where that leaves next to nothing, the policy is drawn towards
      chance instead (``--temperature 1000 --effective 1 --doubt 0``: plain cloning);
    - every family has a trunk of its own, which begins as a copy of the most similar family's (``--inherit nothing``), and old ones keep
      every bit;
    - skills are free to carry some information before the KL holds them (``--free-bits 0``);
    - a family is used again if it scores the new situations as it scores its own, for which there is no unit either (``--no-reuse``);
    - a task is played by the family that learned last of those that know its situations (``--hand-over False``: by the most similar);
    - where situations do not tell the goal, what was done in them does: a family is used again, and plays, if it explains that
      (``--deeds False``: by situations alone);
    - what no family knows is taken up by the one that learned last, to play in it and to grow from (``--strangers similar``);
    - old skills count by how well they explain the new task's actions (``--no-multipliers``);
    - what plays, and what knows situations, is a mean of what was learned lately (``--averaged 1``);
    - who sees everything does not remember: a history that was never recorded says nothing (``--recurrent True``).
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
    averaged: Updates = 100
    """What plays is the mean of what was learned in about so many updates; 1: what was learned last."""
    temperature: Scale = 3.0
    """How closely to follow what was recorded, in spreads of the task's advantages."""
    effective: Annotated[float, Range(above=0, most=1)] = 0.25
    """Share of the recorded episodes that is to count: those that ended well are followed as sharply as leaves so many effective."""
    doubt: Strength = 0.1
    """How strongly the policy is drawn towards chance in moments of episodes that are not followed; where actions are numbered."""
    doubted: Doubted = "episodes"
    """What is doubted: moments of episodes that ended badly, or also actions that weigh less than others in good ones."""
    relations: bool = True
    """Let every target look at the team before agents look at the targets."""
    inherit: Inherited = "actor"
    """What a new family takes over from the most similar one."""
    skill: skills.Kind = "gaussian"
    """What a skill is."""
    skill_size: Size = 16
    """Dimensions of a skill, or classes."""
    kl_weight: Strength = 1.0
    """How strongly prior and posterior are drawn together."""
    free_bits: Spread = 0.1
    """Information per agent and moment, in nats, that a skill may carry for nothing."""
    noise: Spread = 0.1
    """Spread of the noise from which the density estimator tells recorded states."""
    familiar: Share = 0.5
    """How much a new task's situations must be like a family's own for it to be used again: 1 as much as its own, 0 as noise."""
    reuse: bool = field(default=True, metadata={LATER: True})
    """Use a family again to whose own situations a new task's are alike; otherwise every task opens one."""
    hand_over: bool | None = left_to_the_world()
    """Let newer families play old tasks whose situations they know; by default where actions are numbered."""
    known: Share = 0.5
    """How many of an old task's situations must lie among a family's own for it to know them: 1 as many as its own, 0 as noise."""
    deeds: bool | None = left_to_the_world(unnumbered, {LATER: False})
    """Tell tasks by what was done in them too; what is not handed over is played by who explains it best. By default for vectors."""
    strangers: Strangers = "newest"
    """Whose are situations that no family knows, to play in them and to grow from: of the family that learned last, or the most similar."""
    stage_two: bool = True
    """Whether old skills guide new ones in the second half of a task."""
    consulted: SizeOrZero = 2
    """How many old families guide: the most similar ones. What guidance costs grows with them, not with the stream."""
    multipliers: bool = True
    """Let an old family count by how much better than chance it explains the recorded actions; otherwise all count fully."""
    critic_jolt: Spread = 0.01
    """How far each critic network is moved at the start of a task."""
    recurrent: bool | None = left_to_the_world(hidden)
    """Whether agents remember; by default where actions are numbered and something is hidden from them."""

    data: ClassVar[DataSchedule] = OwnTask()

    def init(self, key: PRNGKey, stream: Stream, specs: tuple[Spec, ...], updates: int) -> PlusState:
        """Fresh networks with room for a family per task."""
        capacity = len(stream.tasks)
        critic_key, family_key = jax.random.split(key)
        critics = initialize(lambda draws: Critics.create(draws, specs[0]), critic_key)
        actors, familiarities = create_heads(
            lambda draws: family(draws, specs[0], self.skill, self.skill_size, unless_told(self, "recurrent", specs[0]), self.relations),
            family_key,
            capacity,
        )
        state = PlusState(
            actors=actors,
            familiarities=familiarities,
            learner=pick((actors, familiarities), 0),
            critics=critics,
            targets=critics,
            optimizer=None,
            library=Library.create(capacity, len(stream.tasks)),
            bands=Bands.create(capacity),
            spread=jnp.float32(1.0),
            preference=Preference.none(),
            fits=jnp.zeros(capacity) if unless_told(self, "deeds", specs[0]) else None,
            task=jnp.int32(0),
            update=jnp.int32(0),
            updates=updates,
        )
        return replace(state, optimizer=descent.fresh(state.active))

    def begin(self, state: PlusState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlusState:
        """Use a family again or let one grow from the most similar; jolt the critics, forget the optimizer's momentum."""
        met = self.meet(state, sample)
        likeness = met.likeness
        if state.fits is not None:
            likeness = jnp.minimum(likeness, self.explanations(state, sample) / jnp.maximum(state.fits, SMALLEST_FIT))
        library = admit(state.library, task, likeness, "absolute", self.familiar if self.reuse else math.inf, 0.0, True)
        similar = replace(met, likeness=likeness).nearest(state, self.known, self.strangers)
        grows = (library.used > state.library.used) & (state.library.used > 0)
        critics = omiga.unsettle(state.critics, jnp.where(task > 0, self.critic_jolt, 0.0), key)
        actors = grow(state.actors, jnp.where(grows, similar, library.active), library.active, self.inherit)
        return replace(
            state,
            actors=actors,
            learner=pick((actors, state.familiarities), library.active),
            critics=critics,
            targets=critics,
            optimizer=jax.tree.map(jnp.zeros_like, state.optimizer),
            library=library,
            spread=jnp.float32(1.0),
            preference=Preference.of(sample, self.effective),
            task=jnp.asarray(task, jnp.int32),
            update=jnp.int32(0),
        )

    def update(self, state: PlusState, batch: Batch, key: PRNGKey) -> tuple[PlusState, Logs]:
        """One step of all four groups of the active family; the other families keep every bit."""
        loss_key, guide_key, band_key = jax.random.split(key, 3)
        guided = (state.library.used > 1) & (state.update >= state.updates // 2)
        now = batch.acted
        guidance = jnp.zeros(now.state.agent_present.shape)
        if self.stage_two and self.neighbors(state) > 0:
            guidance = jax.lax.cond(guided, lambda: self.guide(state, now, guide_key), lambda: guidance)
        active = state.active
        gradient, logs = jax.grad(self.loss, has_aux=True)(active, state, batch, guidance, loss_key)
        moved, optimizer, norms = move(active, gradient, state.optimizer, self.clip, self.learning_rate, self.weight_decay)
        state = state.follow(moved, jnp.maximum(2.0 / (2.0 + state.update), 1.0 / self.averaged))
        measured = state.update // MEASURED
        bands = jax.lax.cond(
            state.update % MEASURED == 0, lambda: self.measure(state, batch, band_key, follow_share(measured)), lambda: state.bands
        )
        state = replace(
            state,
            targets=optax.incremental_update(moved.critics, state.targets, self.target_rate),
            optimizer=optimizer,
            bands=bands,
            spread=state.spread + FOLLOWED * (jnp.maximum(logs["advantage_spread"], SMALLEST_SPREAD) - state.spread),
            update=state.update + 1,
        )
        return state, {**logs, **norms}

    def loss(
        self, learned: Learned, state: PlusState, batch: Batch, guidance: Float[Array, "row time agent"], key: PRNGKey
    ) -> tuple[Float[Array, ""], Logs]:
        """The sum of all objectives; no two of them share a weight."""
        skill_key, noise_key, chance_key = jax.random.split(key, 3)
        alpha = self.temperature * state.spread
        q_loss, v_loss, exponent = omiga.critic_losses(learned.critics, state.targets, batch, alpha, self.discount)
        now = batch.acted
        valid, advantage = acting(now), exponent * alpha
        weight = weigh(exponent + guidance, state.preference, now)
        chance = draw_available(chance_key, now.available) if self.doubts(now) else None
        imitation = imitate(learned.actor, now, self.skill, True, skill_key, chance)
        policy_loss = -masked_mean(weight * imitation.log_probability, valid)
        doubt_loss = jnp.zeros(())
        if imitation.other_log_probability is not None:
            # What old skills would not do is no reason to doubt what was recorded.
            trusted = followed(state.preference, now) if self.doubted == "episodes" else weigh(exponent, state.preference, now)
            doubt_loss = -masked_mean(jnp.maximum(1.0 - trusted, 0.0) * imitation.other_log_probability, valid)
        # Held as strongly as actions are imitated; otherwise the skill would leak those that weigh most.
        kl_loss = masked_mean(weight * imitation.divergence, valid)
        density_loss, familiarity = familiarize(learned.familiarity, batch, self.noise, noise_key)
        center = masked_mean(advantage, valid)
        losses = {"q_loss": q_loss, "v_loss": v_loss, "policy_loss": policy_loss, "doubt_loss": doubt_loss, "kl": kl_loss}
        logs = {**losses, **familiarity, **omiga.weight_logs(weight, now), **imitation.logs}
        logs["advantage_spread"] = jnp.sqrt(masked_mean(jnp.square(advantage - center), valid))
        total = (
            q_loss + v_loss + policy_loss + self.doubt * doubt_loss + self.kl_weight * jnp.maximum(kl_loss, self.free_bits) + density_loss
        )
        return total, jax.lax.stop_gradient(logs)

    def doubts(self, batch: Batch) -> bool:
        """Whether anything is doubted: a normal distribution cannot be sure of one action and still leave a little to all others."""
        return self.doubt > 0.0 and not batch.continuous

    def neighbors(self, state: PlusState) -> int:
        """How many old families can be consulted at all."""
        return min(self.consulted, len(state.library.own_score) - 1)

    def guide(self, state: PlusState, batch: Batch, key: PRNGKey) -> Float[Array, "row time agent"]:
        """What the most similar old families say of the recorded actions, each where situations are like its own."""
        others = state.library.opened & (jnp.arange(len(state.library.scores)) != state.library.active)
        _, consulted = jax.lax.top_k(jnp.where(others, state.library.scores, -jnp.inf), self.neighbors(state))
        actors, familiarities = jax.tree.map(lambda leaf: leaf[consulted], (state.actors, state.familiarities))

        def ask(actor: Actor) -> tuple[Array, Array]:
            view = actor.trunk.look(batch)
            skill, policy = skills.draw(self.skill, actor.head.prior(view.history), key), actor.head.policy
            return policy.relative_log_probability(view, skill, batch), policy.log_probability(view, skill, batch)

        said, explained = each(actors, ask)
        bands = jax.tree.map(lambda leaf: leaf[consulted], state.bands)
        # Families stand last while what was made of single moments is handed around.
        odds = batch.once(lambda moments: jnp.moveaxis(odds_of(familiarities, others[consulted], moments.state), 0, -1))
        like = jnp.exp(-bands.outside(jnp.moveaxis(odds, -1, 0))) * others[consulted].reshape(-1, 1, 1)
        share = like / jnp.maximum(like.sum(0, keepdims=True), 1.0)
        if self.multipliers:
            said = said * merit(explained, followed(state.preference, batch), batch).reshape(-1, 1, 1, 1)
        return (share[..., None] * said).sum(0)

    def finish(self, state: PlusState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlusState:
        """Set the active family's band by a sample of its own data, and of that data with noise; note how well it explains that data."""
        bands = self.measure(state, sample, key, 1.0)
        if state.fits is None:
            return replace(state, bands=bands)
        active = state.library.active
        return replace(state, bands=bands, fits=state.fits.at[active].set(self.explanations(state, sample)[active]))

    def measure(self, state: PlusState, sample: Batch, key: PRNGKey, share: float | Float[Array, ""]) -> Bands:
        """Bands moved by a share towards where situations of the active family lie, and these with noise."""
        familiarity = pick(state.familiarities, state.library.active)
        own, noisy = density.tell(familiarity.trunk, familiarity.head, sample.state, density.perturb(sample.state, self.noise, key))
        return state.bands.learn(state.library.active, own, noisy, sample.present, share)

    def explanations(self, state: PlusState, sample: Batch) -> Float[Array, " head"]:
        """How well every family explains what was done in a task."""
        return explanations(state.actors, self.skill, sample, self.effective)

    def meet(self, state: PlusState, sample: Batch) -> Acquaintance:
        """What every family makes of a task's situations."""
        return Acquaintance.make(state, sample)

    def route(self, state: PlusState, task: Int[Array, ""], sample: Batch) -> Int[Array, ""]:
        """Who plays a task: to whom it was handed over; where nothing is, who explains best what was done there or knows where it was."""
        if unless_told(self, "hand_over", sample):
            return self.meet(state, sample).newest_able(state, self.known, self.strangers)
        if state.fits is not None:
            return jnp.where(state.library.opened, self.explanations(state, sample), -jnp.inf).argmax()
        return self.meet(state, sample).nearest(state, self.known, self.strangers)

    def recognize(self, state: PlusState, situations: StateTokens) -> Int[Array, ""]:
        """The family among whose own situations these lie; a few do not spread like anybody's, so each is asked by itself."""
        inside = jnp.exp(self.familiarity(state, situations))
        return inside.reshape(len(inside), -1).mean(-1).argmax()

    def familiarity(self, state: PlusState, situations: StateTokens) -> Float[Array, "head *batch"]:
        """Minus the distance of situations from every family's band, in widths of it; minus infinity for those never opened."""
        opened = state.library.opened
        away = -state.bands.outside(odds_of(state.familiarities, opened, situations))
        return jnp.where(opened.reshape(-1, *[1] * (away.ndim - 1)), away, -jnp.inf)

    def reuse_weights(self, state: PlusState, situations: StateTokens) -> Float[Array, "head *batch"]:
        """How much every family would have to say."""
        return jax.nn.softmax(self.familiarity(state, situations), axis=0)

    def inferred_skills(self, state: PlusState, batch: Batch, head: Int[Array, ""]) -> Float[Array, "row time agent size"]:
        """Means of a family's prior p(z | history) at every recorded moment; of classes, their probabilities."""
        actor = pick(state.actors, head)
        return skills.expected(self.skill, actor.head.prior(actor.trunk.look(batch).history))

    def describe(self, state: PlusState) -> dict[str, Array]:
        """How many families there are and were before this task, which one learns, and how alike each one's situations were."""
        library, bands = state.library, state.bands
        return {
            **library.counts(state.task),
            "scores": library.scores,
            "own_score": jnp.ones_like(bands.noise),
            "noise_score": bands.likeness_of(bands.noise),
        }

    def start(self, state: PlusState, num_agents: int) -> Float[Array, "agent size"]:
        """Empty memory."""
        return pick(state.actors, 0).trunk.start(num_agents)

    def act(
        self,
        state: PlusState,
        memory: Float[Array, "agent size"],
        tokens: Tokens,
        available: Bool[Array, "agent action"],
        head: Int[Array, ""],
        greedy: Bool[Array, ""],
        key: PRNGKey,
    ) -> tuple[Actions, Float[Array, "agent size"]]:
        """A skill from one's own history, an action from skill and history; the likeliest if greedy, else drawn."""
        return play(pick(state.actors, head), self.skill, memory, tokens, available, greedy, key)
