"""The players that come with the package, and those a user has trained: weights with a card that says what they are."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad import checkpoint
from comad.envs import battle
from comad.envs.ant import Ant
from comad.envs.base import Env, HostEnv
from comad.envs.battle import Battle
from comad.envs.rollout import Player
from comad.errors import MALFORMED, UserError, unknown
from comad.experts.base import Trainer
from comad.experts.hatd3 import Hatd3
from comad.experts.joint import JointPlayer
from comad.experts.kin import nearest_kin
from comad.experts.qmix import Qmix
from comad.experts.sac import Sac
from comad.experts.symmetry import Symmetry, TurnedTeam, twins
from comad.files import read_json, sha256, sync_folder, write_json
from comad.settings import from_settings, settings

SHIPPED = Path(__file__).parent / "weights"
TRAINERS: dict[str, Any] = {"qmix": Qmix, "sac": Sac, "hatd3": Hatd3}
"""By the name that cards have for them."""
QUALITIES = ("expert", "medium")
"""Of policies that were trained by themselves, from nothing, as data is by default."""
RELATED = "-related"
"""Follows the quality of policies that began from those of other tasks, or share one training."""


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


def put(folder: Path, team: Any, card: Card) -> Card:
    """Writes weights and their card, which then knows their hash.

    Until both are on the disk, the pair that was there counts.
    """
    weights = folder / card.env / f"{card.quality}.safetensors"
    waiting = _waiting(weights)
    if waiting.exists() and _is_for(weights.with_suffix(".json"), sha256(waiting)):
        _put_in_place(weights)  # what a killed process, or a loss of power, left undone
    checkpoint.save(waiting, team)
    card = dataclasses.replace(card, sha256=sha256(waiting))
    try:
        write_json(weights.with_suffix(".json"), settings(card))
    except BaseException:
        if not _is_for(weights.with_suffix(".json"), card.sha256):
            waiting.unlink()
        raise
    _put_in_place(weights)
    return card


def _waiting(weights: Path) -> Path:
    """Where weights wait for their card and their name; `load` finds them there too."""
    return weights.with_name(f".{weights.name}-next")


def _put_in_place(weights: Path) -> None:
    """Gives weights whose card is there their name."""
    os.replace(_waiting(weights), weights)
    sync_folder(weights.parent)


def _is_for(path: Path, weights: str) -> bool:
    """Whether a card was written for the weights of this hash."""
    try:
        return read_card(path).sha256 == weights
    except UserError:
        return False


def cards(folder: Path = SHIPPED) -> list[Card]:
    """Every card in a folder of weights."""
    return [read_card(path) for path in sorted(folder.glob("*/*.json"))]


def read_card(path: Path) -> Card:
    """One card."""
    try:
        return from_settings(Card, read_json(path))
    except MALFORMED as error:
        raise UserError(f"{path}: not a card of weights ({error})") from error


def get(env: Env[Any] | HostEnv[Any], quality: str, folder: Path = SHIPPED) -> tuple[Player, Card]:
    """A player for a world, if there is one whose world has the same rules and whose file is what its card says.

    An Ant is also played by the team of a world that is the same problem seen from another side, a battle that has no team by that of
    another size; the card is then that team's.
    """
    quality = known_as(env, quality, folder)
    if isinstance(env, Ant) and not _weights(env, quality, folder).exists():
        for twin, symmetry in twins(env):
            if _weights(twin, quality, folder).exists():
                return _turned(env, twin, symmetry, quality, folder)
    team, card = load(_kin(env, quality, folder) or env, quality, folder)
    return trainer_of(card).player(team, env.spec), card


def known_as(env: Env[Any] | HostEnv[Any], quality: str, folder: Path) -> str:
    """Returns the quality of the policy that plays an environment: that of a related one where no separate one is.

    A policy of the environment's own goes before those of others that can play it.
    """
    names = (quality, quality + RELATED)
    own = [name for name in names if _weights(env, name, folder).exists()]
    others = (name for name in names if _twin_plays(env, name, folder) or _kin(env, name, folder))
    return next(iter(own), None) or next(others, quality)


def nearest(env: Env[Any] | HostEnv[Any], quality: str, folder: Path) -> Path:
    """Where to look for a world's team: in a folder of one's own if it is there, else among those that come with the package.

    Teams of battles of another size come last, again one's own first.
    """
    for place in (folder, SHIPPED):
        name = known_as(env, quality, place)
        if _weights(env, name, place).exists() or _twin_plays(env, name, place):
            return place
    return folder if _kin(env, known_as(env, quality, folder), folder) else SHIPPED


def _twin_plays(env: Env[Any] | HostEnv[Any], quality: str, folder: Path) -> bool:
    return isinstance(env, Ant) and any(_weights(twin, quality, folder).exists() for twin, _ in twins(env))


def beginning(env: Env[Any] | HostEnv[Any], start: Env[Any] | HostEnv[Any], folder: Path = SHIPPED) -> Any:
    """What a training begins from: the weights of another world's expert, or that expert as it plays this world, where both are Ants."""
    quality = known_as(start, "expert", folder)
    if not isinstance(env, Ant):
        return load(start, quality, folder)[0]
    symmetry = next((symmetry for twin, symmetry in twins(env) if twin == start), None)
    if symmetry is None or not isinstance(start, Ant):
        raise UserError(f"{env.spec.env} is not {start.spec.env} seen from another side, so its training cannot begin from that team")
    return _turned(env, start, symmetry, quality, folder)[0].team


def _turned(env: Ant, twin: Ant, symmetry: Symmetry, quality: str, folder: Path) -> tuple[JointPlayer, Card]:
    """The team of one world in another one."""
    team, card = load(twin, quality, folder)
    player = trainer_of(card).player(team, env.spec)
    assert isinstance(player, JointPlayer)
    return JointPlayer(TurnedTeam(player.team, symmetry), env.spec), card


def _kin(env: Env[Any] | HostEnv[Any], quality: str, folder: Path) -> Battle | None:
    """The battle of another size whose team plays this one, if this is a battle without a team of its own."""
    if not isinstance(env, Battle) or _weights(env, quality, folder).exists():
        return None
    return nearest_kin(env, filter(None, (battle.make(path.parent.name) for path in folder.glob(f"*/{quality}.safetensors"))))


def _weights(env: Env[Any] | HostEnv[Any], quality: str, folder: Path) -> Path:
    return folder / env.spec.env / f"{quality}.safetensors"


def load(env: Env[Any] | HostEnv[Any], quality: str, folder: Path = SHIPPED) -> tuple[Any, Card]:
    """The same as bare weights."""
    weights = _weights(env, quality, folder)
    if not weights.exists():
        raise UserError(
            f"there is no {quality} player for {env.spec.env} in {folder.name}/; 'comad experts train --tasks {env.spec.env}' makes one, "
            "and 'comad collect --weights out/experts/weights' lets it play"
        )
    card = read_card(weights.with_suffix(".json"))
    if card.rules != env.spec.rules:
        raise UserError(f"{weights}: trained under other rules than those of {env.spec.env} now; train it again")
    if sha256(weights) != card.sha256:
        waiting = _waiting(weights)
        if not waiting.exists() or sha256(waiting) != card.sha256:
            raise UserError(
                f"{weights}: its bytes are not those its card was written for (SHA-256 differs)",
            )
        weights = waiting
    return checkpoint.load(weights, trainer_of(card).blank(env.spec)), card


def trainer_of(card: Card) -> Trainer[Any]:
    """The trainer that a card tells of."""
    if card.algorithm not in TRAINERS:
        raise unknown("trainer", card.algorithm, TRAINERS)
    try:
        return from_settings(TRAINERS[card.algorithm], card.trainer)
    except MALFORMED as error:
        raise UserError(
            f"the {card.quality} player of {card.env}: its trainer's settings are not those of this version ({error})"
        ) from error


def algorithm(trainer: Trainer[Any]) -> str:
    """What cards call a trainer."""
    return next(name for name, kind in TRAINERS.items() if isinstance(trainer, kind))
