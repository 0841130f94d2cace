"""COMAD's gradient step as one writes it in plain PyTorch, eager and on padded episodes: the yardstick for the speed of `Comad.update`.

It shares settings and data with `comad.methods` and `comad.networks` but no code, yet its losses are the same numbers, as a test shows.
What favors it: drawing and padding batches is not timed, nothing is computed for logs alone, optimizers are fused, and attention sums
before it projects. PyTorch is needed to use this module, not to import it (which loads PyTorch if it is there, and that takes seconds).
"""

import copy
import itertools
import time
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from comad.datasets.batches import gather, upload
from comad.datasets.packing import Index
from comad.datasets.store import Dataset
from comad.errors import UserError
from comad.methods.comad import Comad, ComadState
from comad.types import Batch, Discrete, Spec, StateTokens, Tokens

try:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.nn.utils import clip_grad_norm_, parameters_to_vector
except ModuleNotFoundError:
    torch = nn = None

Tensor = Any
"""A tensor of PyTorch, [episode, time, agent, ...]."""
Situation = list[tuple[Tensor, Tensor]]
"""Features and presence of agents, of targets and, if the world has one, of the context."""

WIDTH, PROJECTION = 64, 8
UNAVAILABLE, SMALLEST_DENSITY, EXPONENT_BOUND = -1e9, 1e-6, 10.0
WARM_UP, BLOCK = 5, 5
"""Updates before the clock starts, and in each measurement."""


class Module(nn.Module if nn else object):  # type: ignore[misc]
    """A network; a class of its own so that networks can be defined where PyTorch is absent. Parts stand in the same order as ours."""


def mlp(*sizes: int) -> Any:
    """Affine maps with ReLU between them."""
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Attention(Module):
    """One head of attention with a residual and a layer normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(WIDTH, PROJECTION), nn.Linear(WIDTH, PROJECTION), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, readers: Tensor, entities: Tensor, present: Tensor) -> Tensor:
        """What each reader makes of all entities that are present."""
        scores = self.query(readers) @ self.key(entities).transpose(-2, -1) * PROJECTION**-0.5
        weights = scores.masked_fill(~present[..., None, :], UNAVAILABLE).softmax(-1)
        return self.norm(readers + self.value(weights @ entities))


class ObservationEncoder(Module):
    """Each agent's summary of what it sees."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.own, self.ally, self.target = (mlp(size, WIDTH, WIDTH) for size in (spec.own_size, spec.ally_size, spec.target_size))
        self.attention = Attention()

    def forward(self, tokens: Tokens) -> Tensor:
        """Summaries of the own token."""
        own = self.own(tokens.own).unsqueeze(-2)
        entities = torch.cat([own, self.ally(tokens.allies), self.target(tokens.targets)], -2)
        itself = torch.ones_like(own[..., 0], dtype=torch.bool)
        return self.attention(own, entities, torch.cat([itself, tokens.ally_seen, tokens.target_seen], -1)).squeeze(-2)


class StateEncoder(Module):
    """A summary of each agent's place in the whole situation, and one of the situation."""

    def __init__(self, spec: Spec, extra: int = 0) -> None:
        super().__init__()
        sizes = (len(spec.state_agent) + extra, len(spec.state_target), *([len(spec.context)] if spec.context else []))
        self.embeddings = nn.ModuleList(mlp(size, WIDTH, WIDTH) for size in sizes)
        self.attention = Attention()

    def forward(self, situation: Situation) -> tuple[Tensor, Tensor]:
        """Agents' summaries, and the mean over all entities that are present."""
        entities = torch.cat([embed(part) for embed, (part, _) in zip(self.embeddings, situation, strict=True)], -2)
        present = torch.cat([mask for _, mask in situation], -1)
        read, counted = self.attention(entities, entities, present), present.unsqueeze(-1).float()
        return read[..., : situation[0][0].shape[-2], :], (read * counted).sum(-2) / counted.sum(-2).clamp(min=1.0)


class LinearMixer(Module):
    """Non-negative weights of the agents' values, and what the situation is worth by itself."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.encoder, self.weight, self.bias = StateEncoder(spec), mlp(WIDTH, WIDTH, WIDTH, 1), mlp(WIDTH, WIDTH, WIDTH, 1)

    def forward(self, situation: Situation) -> tuple[Tensor, Tensor]:
        """Weights and bias; agents that are no longer there weigh nothing."""
        agents, whole = self.encoder(situation)
        return self.weight(agents).squeeze(-1).abs() * situation[0][1], self.bias(whole).squeeze(-1)


class Critics(Module):
    """Values of agents and team."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.q = nn.Sequential(ObservationEncoder(spec), mlp(WIDTH, WIDTH, WIDTH, spec.num_actions))
        self.mixer, self.v = LinearMixer(spec), nn.Sequential(ObservationEncoder(spec), mlp(WIDTH, WIDTH, WIDTH, 1))


class Trunk(Module):
    """What an agent sees, and what it has seen."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.encoder, self.mlp, self.memory = ObservationEncoder(spec), mlp(WIDTH, WIDTH, WIDTH), nn.GRU(WIDTH, WIDTH)

    def forward(self, tokens: Tokens) -> Tensor:
        """Histories at every moment; every row of a padded batch begins with its episode."""
        seen = self.mlp(self.encoder(tokens)).relu()
        episodes, moments, agents, _ = seen.shape
        histories, _ = self.memory(seen.transpose(0, 1).reshape(moments, episodes * agents, WIDTH))
        return histories.view(moments, episodes, agents, WIDTH).transpose(0, 1)


class DensityTrunk(Module):
    """The part of the density estimator that all heads share."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.encoder, self.mlp = StateEncoder(spec), mlp(WIDTH, WIDTH, WIDTH)

    def forward(self, situation: Situation) -> Tensor:
        """A summary of the situation."""
        return self.mlp(self.encoder(situation)[1]).relu()


class Head(Module):
    """One family of skills."""

    def __init__(self, spec: Spec, size: int) -> None:
        super().__init__()
        self.policy = mlp(WIDTH + size, WIDTH, WIDTH, spec.num_actions)
        self.prior, self.posterior = mlp(WIDTH, WIDTH, WIDTH, 2 * size), mlp(WIDTH, WIDTH, WIDTH, 2 * size)

    def forward(self, history: Tensor, skill: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        """Log-probability of recorded actions with a skill drawn from its mean and log standard deviation."""
        drawn = skill[0] + skill[1].exp() * torch.randn_like(skill[0])
        logits = self.policy(torch.cat([history, drawn], -1)).masked_fill(~batch.available, UNAVAILABLE)
        return chosen(logits.log_softmax(-1), batch.actions)


class Learner:
    """All networks and optimizers at some task of a stream, with a head for each task so far; the last one learns."""

    def __init__(self, spec: Spec, method: Comad, task: int = 0, stage: Literal[1, 2] = 1) -> None:
        if not isinstance(spec.actions, Discrete) or spec.aims:
            raise UserError(f"{spec.env}: the peer in PyTorch knows numbered actions without targets only")
        self.method, self.task, self.stage, self.num_actions = method, task, stage, spec.num_actions
        self.trunk, self.posterior, self.density = Trunk(spec), StateEncoder(spec, extra=spec.num_actions), DensityTrunk(spec)
        self.heads = nn.ModuleList(Head(spec, method.skill_size) for _ in range(task + 1))
        self.density_heads = nn.ModuleList(mlp(WIDTH, WIDTH, WIDTH, 1) for _ in range(task + 1))
        self.critics = Critics(spec)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.anchor, self.snapshot = copy.deepcopy((self.trunk, self.density)), copy.deepcopy((self.trunk, self.heads))
        actor, familiarity = (self.trunk, self.posterior, self.heads[-1]), (self.density, self.density_heads[-1])
        modules = (actor, familiarity, (self.critics.q, self.critics.mixer), (self.critics.v,))
        self.groups = [[weight for module in group for weight in module.parameters()] for group in modules]
        rates = {"lr": method.learning_rate, "weight_decay": method.weight_decay}
        self.optimizers = [torch.optim.AdamW(group, **rates, fused=True) for group in self.groups]

    def load_weights(self, state: ComadState) -> None:
        """Take over the weights of our own implementation; policies guide as they are now."""
        actor, familiarity = state.learned.actor, state.learned.familiarity
        ours = (actor.trunk, actor.posterior, familiarity.trunk, state.learned.critic, state.learned.value, state.targets, *state.anchor)
        critics = (nn.ModuleList([self.critics.q, self.critics.mixer]), self.critics.v, self.targets)
        for module, tree in zip((self.trunk, self.posterior, self.density, *critics, *self.anchor), ours, strict=True):
            copy_weights(module, tree)
        for number in range(self.task + 1):
            for heads, stack in ((self.heads, actor.head), (self.density_heads, familiarity.head)):
                copy_weights(heads[number], jax.tree.map(lambda leaf, number=number: leaf[number], stack))
        self.snapshot = copy.deepcopy((self.trunk, self.heads))

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One step of all four groups; the losses before it."""
        losses = self.losses(batch)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        losses["total"].backward()
        for group, optimizer in zip(self.groups, self.optimizers, strict=True):
            clip_grad_norm_(group, self.method.clip)
            optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.targets.parameters()), list(self.critics.parameters()), self.method.target_rate)
        return losses

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """All objectives and their sum."""
        method, head, situation = self.method, self.heads[-1], situation_of(batch.state)
        acting = batch.step[..., None] & batch.state.agent_present
        q_loss, v_loss, exponent = self.critic_losses(batch, situation, acting)

        history, acted = self.trunk(batch.tokens), functional.one_hot(batch.actions, self.num_actions).float()
        joint = [(torch.cat([batch.state.agents, acted], -1), batch.state.agent_present), *situation[1:]]
        prior, posterior = split(head.prior(history)), split(head.posterior(self.posterior(joint)[0]))
        log_probability = head(history, posterior, batch)
        if self.stage == 2:
            exponent = exponent + self.guidance(batch, situation)
        weight = exponent.clamp(-EXPONENT_BOUND, EXPONENT_BOUND).exp()
        policy_loss = -masked_mean(weight * log_probability, acting)
        kl = masked_mean(divergence(*posterior, *prior), acting)

        noisy = [(part + method.noise * torch.randn_like(part) * mask[..., None], mask) for part, mask in situation]
        odds, noisy_odds = (self.density_heads[-1](self.density(shown)).squeeze(-1) for shown in (situation, noisy))
        density_loss = masked_mean(functional.softplus(-odds) + functional.softplus(noisy_odds), batch.present)

        losses = {"q_loss": q_loss, "v_loss": v_loss, "policy_loss": policy_loss, "kl": kl, "density_loss": density_loss}
        total = q_loss + v_loss + policy_loss + method.kl_weight * kl + density_loss
        if self.task:
            now, kept = ([parameters_to_vector(part.parameters()) for part in pair] for pair in ((self.trunk, self.density), self.anchor))
            drift, density_drift = ((here - there.detach()).square().sum() for here, there in zip(now, kept, strict=True))
            losses["drift"], total = drift, total + method.anchor * (drift + density_drift)
        return losses | {"total": total}

    def critic_losses(self, batch: Batch, situation: Situation, acting: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The losses of Q with the mixer and of V, and the exponent that weighs each recorded action."""
        method, critics, targets = self.method, self.critics, self.targets
        with torch.no_grad():
            target_weight, target_bias = targets.mixer(situation)
            target_q, target_v = chosen(targets.q(batch.tokens), batch.actions), targets.v(batch.tokens).squeeze(-1)
            following = ((target_weight * target_v).sum(-1) + target_bias).roll(-1, 1)
            goal = batch.reward + method.discount * following * ~batch.terminated
        mix_weight, mix_bias = critics.mixer(situation)
        team_value = (mix_weight * chosen(critics.q(batch.tokens), batch.actions)).sum(-1) + mix_bias
        q_loss = masked_mean((team_value - goal).square(), batch.step)
        v = critics.v(batch.tokens).squeeze(-1)
        exponent = (target_weight * (target_q - v) / method.temperature).clamp(-EXPONENT_BOUND, EXPONENT_BOUND)
        largest = exponent.detach().masked_fill(~acting, -EXPONENT_BOUND).max().clamp(min=-1.0)
        v_loss = masked_mean((exponent - largest).exp() + (-largest).exp() * target_weight * v / method.temperature, acting)
        return q_loss, v_loss, exponent.detach()

    def guidance(self, batch: Batch, situation: Situation) -> Tensor:
        """What the skills of all heads say of the recorded actions, weighed by how familiar the situation is to each."""
        with torch.no_grad():
            history, summary = self.snapshot[0](batch.tokens), self.density(situation)
            said = torch.stack([head(history, split(head.prior(history)), batch) for head in self.snapshot[1]])
            density = torch.stack([head(summary) for head in self.density_heads]).clamp(min=SMALLEST_DENSITY)
            return (density / density.sum(0) * said).sum(0)


def situation_of(state: StateTokens) -> Situation:
    """State tokens by kind."""
    context: Tensor = state.context[..., None, :]
    parts = [(state.agents, state.agent_present), (state.targets, state.target_present)]
    return [*parts, (context, torch.ones_like(context[..., 0], dtype=torch.bool))] if context.shape[-1] else parts


def chosen(values: Tensor, actions: Tensor) -> Tensor:
    """The value of each recorded action."""
    return values.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over what counts."""
    return (values * mask).sum() / mask.sum()


def split(parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation of a skill."""
    mean, log_spread = parameters.chunk(2, -1)
    return mean, log_spread.clamp(-5.0, 2.0)


def divergence(mean_q: Tensor, log_q: Tensor, mean_p: Tensor, log_p: Tensor) -> Tensor:
    """KL of the prior from the posterior."""
    ratio = (2.0 * (log_q - log_p)).exp()
    return (log_p - log_q + 0.5 * (ratio + ((mean_q - mean_p) * (-log_p).exp()).square() - 1.0)).sum(-1)


def copy_weights(module: Any, tree: Any) -> None:
    """Give a module the weights of our own network, whose parts stand in the same order and multiply from the right."""
    memory = ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0")
    names = [(part, memory if isinstance(part, nn.GRU) else dict(part.named_parameters(recurse=False))) for part in module.modules()]
    weights = [getattr(part, name) for part, own in names for name in own]
    for weight, leaf in zip(weights, jax.tree.leaves(tree), strict=True):
        weight.data = torch.from_numpy(np.array(leaf.T, order="C")).view(weight.shape)


def available() -> bool:
    """Whether PyTorch is installed."""
    return torch is not None


def load_batch(spec: Spec, dataset: Dataset, episodes: np.ndarray, length: int) -> Batch:
    """A batch of tensors of PyTorch: one episode per row, all rows padded to one length."""
    starts, lengths = (np.asarray(table, np.int64)[episodes, None] for table in (dataset.starts, dataset.lengths))
    moments = np.arange(length)[None]
    present = moments <= lengths
    index = Index(np.where(present, starts + moments, 0), np.broadcast_to(moments == 0, present.shape), moments < lengths, present)
    batch = jax.tree.map(lambda leaf: torch.from_numpy(np.array(leaf)), gather(spec, upload(dataset), index))
    return eqx.tree_at(lambda batch: batch.actions, batch, replace_fn=lambda actions: actions.long())


def prepare(
    spec: Spec, dataset: Dataset, batch: int, seed: int, task: int = 0, stage: Literal[1, 2] = 1, length: int | None = None
) -> Callable[[], float]:
    """A function that makes one update and returns the loss before it, with fresh networks and always the same batch.

    Args:
        spec: the world.
        dataset: what was recorded in it.
        batch: episodes per batch, drawn at random.
        seed: of weights, batch and noise.
        task: how many tasks came before; if any did, trunks are held in place and each has left a head.
        stage: 2 if the skills of all heads guide.
        length: moments per row; by default as many as the longest possible episode has.
    """
    torch.manual_seed(seed)
    learner = Learner(spec, Comad(), task, stage)
    episodes = np.random.default_rng(seed).choice(len(dataset.lengths), batch, replace=False)
    loaded = load_batch(spec, dataset, episodes, length or spec.limit + 1)
    return lambda: learner.update(loaded)["total"].item()


def measure(step: Callable[[], float], seconds: float, threads: int = 1) -> float:
    """Milliseconds per update, with that many threads from now on: the best of several blocks, as ours are measured."""
    torch.set_num_threads(threads)
    for _ in range(WARM_UP):
        step()
    took: list[float] = []
    while sum(took) < seconds or len(took) < 2:
        began = time.perf_counter()
        for _ in range(BLOCK):
            step()
        took.append(time.perf_counter() - began)
    return 1000.0 * min(took) / BLOCK
