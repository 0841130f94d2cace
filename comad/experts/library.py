"""The players that come with the package, and those a user has trained: weights with a card that says what they are."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp

from comad import checkpoint
from comad.envs.base import Env
from comad.errors import MALFORMED, UserError
from comad.experts import qmix
from comad.experts.agent import Agent, GreedyPlayer
from comad.experts.qmix import Qmix
from comad.files import read_json, sha256, write_json
from comad.types import from_settings

SHIPPED = Path(__file__).parent / "weights"
Quality = Literal["expert", "medium"]
QUALITIES: tuple[Quality, ...] = ("expert", "medium")


@dataclass(frozen=True)
class Card:
    """Where weights come from and what they are worth."""

    env: str
    rules: str
    """Of the world they were trained in."""
    quality: str
    algorithm: str
    trainer: dict[str, Any]
    """Settings of the training."""
    start: str
    """World whose expert the training began from; empty if it began from nothing."""
    seed: int
    steps: int
    """Environment steps until these weights."""
    minutes: float
    """Time until these weights, on one core."""
    episodes: int
    """Fresh episodes behind the three numbers below."""
    total: float
    success: float
    length: float
    command: str
    """What trains them again."""
    sha256: str = ""
    """Of the weights' file."""


def put(folder: Path, agent: Agent, card: Card) -> Card:
    """Write weights and their card, which then knows their hash."""
    weights = folder / card.env / f"{card.quality}.safetensors"
    checkpoint.save(weights, agent)
    card = dataclasses.replace(card, sha256=sha256(weights))
    write_json(weights.with_suffix(".json"), dataclasses.asdict(card))
    return card


def cards(folder: Path = SHIPPED) -> list[Card]:
    """Every card in a folder of weights."""
    return [read_card(path) for path in sorted(folder.glob("*/*.json"))]


def read_card(path: Path) -> Card:
    """One card."""
    try:
        return from_settings(Card, read_json(path))
    except MALFORMED as error:
        raise UserError(f"{path}: not a card of weights ({error})") from error


def get(env: Env[Any], quality: str, folder: Path = SHIPPED) -> tuple[GreedyPlayer, Card]:
    """A player for a world, if there is one whose world has the same rules and whose file is what its card says."""
    weights = folder / env.spec.env / f"{quality}.safetensors"
    if not weights.exists():
        raise UserError(
            f"there is no {quality} player for {env.spec.env} in {folder.name}/; 'comad experts train --tasks {env.spec.env}' makes one"
        )
    card = read_card(weights.with_suffix(".json"))
    if card.rules != env.spec.rules:
        raise UserError(f"{weights}: trained under other rules than those of {env.spec.env} now; train it again")
    if sha256(weights) != card.sha256:
        raise UserError(f"{weights}: its bytes are not those its card was written for (SHA-256 differs)")
    return GreedyPlayer(load_agent(weights, env, card), jnp.float32(0.0)), card


def load_agent(weights: Path, env: Env[Any], card: Card) -> Agent:
    """The weights of a card's player, shaped for a world whose tokens fit."""
    try:
        trainer = from_settings(Qmix, card.trainer)
    except MALFORMED as error:
        raise UserError(f"{weights.with_suffix('.json')}: its trainer's settings are not those of this version ({error})") from error
    like = jax.eval_shape(lambda: qmix.init(trainer, env, jax.random.key(0)).online.agent)
    return checkpoint.load(weights, like)
