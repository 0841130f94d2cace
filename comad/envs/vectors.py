"""The flat vectors in which other people's worlds and data tell what is seen and what is, to the fields of tokens and back.

SMAC's observations are moves | enemies | allies | own and its states agents | enemies | last actions; all other worlds have the plain order
own | allies | targets and agents | targets | context.
"""

import numpy as np

from comad.envs.starcraft_maps import DIRECTIONS, is_starcraft
from comad.tokens import other_agents
from comad.types import Discrete, Spec

Fields = dict[str, np.ndarray]
"""Arrays by the names that files have for the fields of `Tokens` or `StateTokens`."""
HEALER = "is medivac"


def widths(spec: Spec) -> tuple[int, int]:
    """Numbers in a flat observation and in a flat state."""
    allies, targets, last_actions = spec.num_agents - 1, spec.num_targets, spec.num_agents * spec.num_actions
    obs = len(spec.own) + allies * len(spec.ally) + targets * len(spec.target)
    state = spec.num_agents * len(spec.state_agent) + targets * len(spec.state_target) + len(spec.context)
    return obs, state + (last_actions if is_starcraft(spec) else 0)


def split_obs(spec: Spec, obs: np.ndarray) -> Fields:
    """What agents see: an ally is seen if its first feature says so, a target if it has any (one in sight may be out of range)."""
    ally_size, target_size = (spec.num_agents - 1) * len(spec.ally), spec.num_targets * len(spec.target)
    if is_starcraft(spec):
        moves, targets, allies, body = np.split(obs, np.cumsum([len(DIRECTIONS), target_size, ally_size]), axis=-1)
        own = np.concatenate([moves, body], axis=-1)
    else:
        own, allies, targets = np.split(obs, np.cumsum([len(spec.own), ally_size]), axis=-1)
    allies = allies.reshape(*obs.shape[:2], spec.num_agents - 1, len(spec.ally))
    targets = targets.reshape(*obs.shape[:2], spec.num_targets, len(spec.target))
    ally_seen, target_seen = allies[..., 0] > 0, (targets != 0).any(-1)
    allies = np.where(ally_seen[..., None], allies, 0)
    return {"own": own, "allies": allies, "targets": targets, "ally_seen": ally_seen, "target_seen": target_seen}


def join_obs(spec: Spec, own: np.ndarray, allies: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Flat observations [moment, agent, feature]."""
    allies, targets = (block.reshape(*block.shape[:2], -1) for block in (allies, targets))
    moves, body = np.split(own, [len(DIRECTIONS)], axis=-1)
    return np.concatenate([moves, targets, allies, body] if is_starcraft(spec) else [own, allies, targets], axis=-1)


def split_state(spec: Spec, state: np.ndarray) -> Fields:
    """The whole situation without last actions; who has no health (or, in CN, no row) is absent."""
    agent_size, target_size = spec.num_agents * len(spec.state_agent), spec.num_targets * len(spec.state_target)
    agents, targets, _ = np.split(state, np.cumsum([agent_size, target_size]), axis=-1)
    agents = agents.reshape(-1, spec.num_agents, len(spec.state_agent))
    targets = targets.reshape(-1, spec.num_targets, len(spec.state_target))
    agent_present, target_present = agents[..., 0] > 0, targets[..., 0] > 0
    return {
        "agents": np.where(agent_present[..., None], agents, 0),
        "targets": np.where(target_present[..., None], targets, 0),
        "context": np.zeros((len(state), 0), np.float32),
        "agent_present": agent_present,
        "target_present": target_present,
    }


def join_state(spec: Spec, agents: np.ndarray, targets: np.ndarray, context: np.ndarray, last_actions: np.ndarray) -> np.ndarray:
    """Flat states [moment, feature]; SMAC's end with everybody's last action, one-hot."""
    parts = [agents, targets, context, *([last_actions] if is_starcraft(spec) else [])]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=-1)


def has_healers(spec: Spec) -> bool:
    """Whether some units aim at allies, so that their targets are not the enemies (`aim_at_allies`)."""
    return any(feature.name == HEALER for feature in spec.own)


def aim_at_allies(spec: Spec, tokens: Fields, available: np.ndarray) -> Fields:
    """Give medivacs the targets that their aimed actions have: attack j, for them, heals ally j.

    A policy decides an aimed action from the target's token, so a medivac's token j must tell of ally j, in the features of an enemy's:
    an ally's block is the same but for its first feature, which says "visible" where an enemy's says "in range". That is what
    availability says of it. The medivac itself and numbers beyond the team are unseen. The enemies a medivac sees are thereby lost to it.
    """
    if not has_healers(spec) or not isinstance(spec.actions, Discrete):
        return tokens
    agents = np.arange(spec.num_agents)[:, None]
    places = (slice(None), agents, other_agents(spec.num_agents))
    seen, slots = np.zeros_like(tokens["target_seen"]), np.zeros_like(tokens["targets"])
    seen[places], slots[places] = tokens["ally_seen"], tokens["allies"]
    slots[..., 0] = seen & available[..., len(spec.actions.base) :]
    # The dead are of no kind, so their targets stay what they were: nothing.
    healer = tokens["own"][..., [feature.name for feature in spec.own].index(HEALER)] > 0
    return tokens | {
        "targets": np.where(healer[..., None, None], slots, tokens["targets"]),
        "target_seen": np.where(healer[..., None], seen, tokens["target_seen"]),
    }
