"""A stand-in for the environments of SMAC and SMACv2: their documented interface and vectors around a toy battle, and no game."""

import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

SETTINGS = {
    *("step_mul", "move_amount", "difficulty", "game_version", "continuing_episode", "obs_all_health", "obs_own_health"),
    *("obs_last_action", "obs_pathing_grid", "obs_terrain_height", "obs_instead_of_state", "obs_timestep_number"),
    *("state_last_action", "state_timestep_number", "reward_sparse", "reward_only_positive", "reward_death_value", "reward_win"),
    *("reward_defeat", "reward_negative_scale", "reward_scale", "reward_scale_rate"),
}
SECOND = {"obs_own_pos", "use_unit_ranges", "min_attack_range", "conic_fov", "prob_obs_enemy", "action_mask", "capability_config"}
TYPES = {
    **{"m": (["marine"], ["marine"]), "s": (["stalker", "zealot"], ["zealot", "stalker"])},
    **{"10gen_protoss": (["stalker", "zealot", "colossus"],) * 2, "10gen_terran": (["marine", "marauder", "medivac"],) * 2},
}
RANGES = {"marine": (9, 5), "marauder": (10, 6), "medivac": (11, 4), "stalker": (10, 6), "zealot": (9, 2), "colossus": (10, 7)}
LOCK = threading.Lock()
STEPS = {2: (0, 2), 3: (0, -2), 4: (2, 0), 5: (-2, 0)}
REGISTRY: dict[str, dict[str, Any]] = {
    "3m": {"n_agents": 3, "n_enemies": 3, "limit": 6, "units": ["marine"] * 3},
    "2s3z": {"n_agents": 5, "n_enemies": 5, "limit": 120, "units": ["stalker"] * 2 + ["zealot"] * 3},
    "10gen_protoss": {"n_agents": 10, "n_enemies": 10, "limit": 200},
    "10gen_terran": {"n_agents": 10, "n_enemies": 10, "limit": 200},
}


class StarCraft2Env:
    """Enemies stand still. By the seed (mod 3) they are harmless, kill somebody in every step, or are out of reach."""

    opened: ClassVar[list["StarCraft2Env"]] = []
    faults: ClassVar[dict[str, int]] = {}
    """How often starting, ``reset`` and ``step`` will still fail."""

    def __init__(self, map_name: str = "8m", seed: int | None = None, **settings: Any) -> None:
        self.second = map_name.startswith("10gen_")
        assert settings.keys() <= SETTINGS | (SECOND if self.second else set())
        assert isinstance(seed, int)
        self.map_name, self.seed_given, self.mood, self.closed, self.running = map_name, seed, seed % 3, False, False
        self.entry = REGISTRY[map_name] | settings.get("capability_config", {}).get("team_gen", {})
        self.n_agents, self.n_enemies = self.entry.get("n_units", self.entry["n_agents"]), self.entry["n_enemies"]
        self.our_types, self.their_types = TYPES[map_name if self.second else "m" if map_name.endswith("m") else "s"]
        self.shielded = "stalker" in self.our_types
        self.episodes: list[Any] = []
        self.opened.append(self)
        self.fail("start")

    def fails(self, when: str) -> bool:
        with LOCK:
            left = self.faults.get(when, 0)
            self.faults[when] = max(0, left - 1)
        return left > 0

    def fail(self, when: str) -> None:
        if self.fails(when):
            raise ConnectionError(f"no {when} today")

    def reset(self, episode_config: dict[str, Any] | None = None) -> tuple[Any, Any]:
        assert not self.running, "SMAC would start a second program and forget the first"
        self.fail("reset")
        rows = np.arange(max(self.n_agents, self.n_enemies)) * 1.5 + 10
        gap = 20 if self.mood == 2 else 5
        self.ours, self.theirs = self.entry.get("units"), self.entry.get("units")
        self.places = np.array([(6, row) for row in rows[: self.n_agents]] + [(6 + gap, row) for row in rows[: self.n_enemies]], float)
        if episode_config is not None:
            assert self.second
            self.ours, self.theirs = episode_config["team_gen"]["ally_team"], episode_config["team_gen"]["enemy_team"]
            self.places = np.concatenate([episode_config[f"{side}_start_positions"]["item"] for side in ("ally", "enemy")])
        assert (len(self.ours), len(self.theirs), len(self.places)) == (self.n_agents, self.n_enemies, self.n_agents + self.n_enemies)
        self.health, self.steps, self.running = np.ones(len(self.places)), 0, True
        self.last_action = np.zeros((self.n_agents, 6 + self.n_enemies))
        self.episodes.append(episode_config)
        return self.get_obs(), self.get_state()

    def step(self, actions: list[int]) -> tuple[float, bool, dict[str, Any]]:
        available, before = self.get_avail_actions(), self.health.copy()
        assert self.running and all(available[agent][action] for agent, action in enumerate(actions)), actions
        if self.fails("step"):
            return 0, True, {}
        self.last_action = np.eye(6 + self.n_enemies)[actions]
        for agent, action in enumerate(actions):
            self.places[agent] += STEPS.get(action, (0, 0))
            if action >= 6 and self.heals(agent):
                self.health[action - 6] = 1.0
            elif action >= 6:
                self.health[self.n_agents + action - 6] -= 0.5
        if self.mood == 1:
            self.health[np.argmax(self.health[: self.n_agents] > 0)] = 0.0
        self.health, self.steps = np.maximum(self.health, 0), self.steps + 1
        won, lost = not self.health[self.n_agents :].any(), not self.health[: self.n_agents].any()
        self.running = not (won or lost or self.steps >= self.entry["limit"])
        reward = float((before - self.health)[self.n_agents :].sum()) + 10.0 * won
        return reward, not self.running, {"battle_won": won and not lost, "dead_allies": 0, "dead_enemies": 0}

    def heals(self, agent: int) -> bool:
        return self.second and self.ours[agent] == "medivac"

    def distance(self, agent: int, other: int) -> float:
        return float(np.linalg.norm(self.places[other] - self.places[agent]))

    def ranges(self, agent: int) -> tuple[float, float]:
        return RANGES[self.ours[agent]] if self.second else (9, 6)

    def get_avail_actions(self) -> list[list[int]]:
        return [self.get_avail_agent_actions(agent) for agent in range(self.n_agents)]

    def get_avail_agent_actions(self, agent: int) -> list[int]:
        if self.health[agent] <= 0:
            return [1] + [0] * (5 + self.n_enemies)
        ahead = self.places[agent] + np.array(list(STEPS.values()))
        moves = ((ahead >= 0) & (ahead <= 32)).all(-1).astype(int).tolist()
        aimed = [0] * self.n_enemies
        for slot in range(self.n_agents if self.heals(agent) else self.n_enemies):
            other = slot if self.heals(agent) else self.n_agents + slot
            if (
                self.health[other] > 0
                and self.distance(agent, other) <= self.ranges(agent)[1]
                and not (other == slot and self.heals(other))
            ):
                aimed[slot] = 1
        return [0, 1, *moves, *aimed]

    def kind(self, unit: int) -> list[float]:
        ours = unit < self.n_agents
        kind, types = (self.ours[unit], self.our_types) if ours else (self.theirs[unit - self.n_agents], self.their_types)
        return [0.25] * self.shielded + ([float(kind == name) for name in types] if len(types) > 1 else [])

    def get_obs(self) -> list[np.ndarray]:
        return [self.get_obs_agent(agent) for agent in range(self.n_agents)]

    def get_obs_agent(self, agent: int) -> np.ndarray:
        if self.health[agent] <= 0:
            return np.zeros(self.get_env_info()["obs_shape"], np.float32)
        sight, can = self.ranges(agent)[0], self.get_avail_agent_actions(agent)
        blocks = {}
        for other in range(len(self.places)):
            slot, distance = other - self.n_agents, self.distance(agent, other)
            seen = self.health[other] > 0 and distance < sight
            first = can[6 + slot] if slot >= 0 else 1
            block = [first, distance / sight, *((self.places[other] - self.places[agent]) / sight), self.health[other], *self.kind(other)]
            blocks[other] = block if seen else [0.0] * len(block)
        place, kind = list(self.places[agent] / 32) if self.second else [], self.kind(agent)
        own = [self.health[agent], *kind[: self.shielded], *place, *kind[self.shielded :]]
        others = [*range(self.n_agents, len(self.places)), *(ally for ally in range(self.n_agents) if ally != agent)]
        return np.concatenate([can[2:6], *(blocks[other] for other in others), own]).astype(np.float32)

    def get_state(self) -> np.ndarray:
        rows: list[float] = []
        for unit, (health, place) in enumerate(zip(self.health, self.places, strict=True)):
            row = [health, *([0.125] if unit < self.n_agents else []), *((place - 16) / 32), *self.kind(unit)]
            rows += row if health > 0 else [0.0] * len(row)
        return np.concatenate([rows, self.last_action.ravel()]).astype(np.float32)

    def get_env_info(self) -> dict[str, Any]:
        kind = self.shielded + (len(self.our_types) if len(self.our_types) > 1 else 0)
        actions, agents, enemies = 6 + self.n_enemies, self.n_agents, self.n_enemies
        obs = 4 + (5 + kind) * (enemies + agents - 1) + 1 + kind + 2 * self.second
        state = agents * (4 + kind) + enemies * (3 + kind) + agents * actions
        sizes = {"state_shape": state, "obs_shape": obs, "n_actions": actions, "n_agents": agents}
        return sizes | {"episode_limit": self.entry["limit"]}

    def close(self) -> None:
        self.closed = True


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both packages as far as they are looked at, and a folder that looks like the game's."""
    for package in ("smac", "smacv2"):
        maps = folder / "packages" / package / "env" / "starcraft2" / "maps"
        maps.mkdir(parents=True)
        for parent in (maps, *list(maps.parents)[:3]):
            (parent / "__init__.py").touch()
        (maps.parent.parent / "__init__.py").write_text("from starcraft_fake import StarCraft2Env")
        # Importing it would fail as it does without the game's client.
        (maps / "smac_maps.py").write_text(f"from pysc2.maps import lib\nmap_param_registry = {REGISTRY!r}")
    files = folder / "game" / "Maps" / "SMAC_Maps"
    files.mkdir(parents=True)
    for name in ("3m", "2s3z", "32x32_flat"):
        (files / f"{name}.SC2Map").touch()
    monkeypatch.syspath_prepend(str(folder / "packages"))
    monkeypatch.setenv("SC2PATH", str(folder / "game"))
