"""A small world outside JAX whose actions are vectors: two agents see a number and should name it, one with the sign turned."""

from dataclasses import dataclass, replace
from functools import cached_property

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, Int

from comad.envs.base import rules_of
from comad.envs.scene import Scene
from comad.tokens import full_view
from comad.types import Continuous, Feature, Spec, StateTokens, Step

SIGNS = np.array([1.0, -1.0])


class AimingWorld(eqx.Module):
    number: Float64[np.ndarray, " episode"]
    time: Int[np.ndarray, " episode"]


@dataclass(frozen=True)
class Aiming:
    """The number drifts a little; who is told a number above the edge falls off the world."""

    limit: int = 4
    edge: float = 9.0

    @cached_property
    def spec(self) -> Spec:
        agent, target = (Feature("sign"), Feature("shin force x")), (Feature("torque y"), Feature("number"))
        return Spec(
            env=f"aiming-{self.limit}",
            version=1,
            rules=rules_of("aiming", 1, {"limit": self.limit, "edge": self.edge}),
            num_agents=2,
            num_targets=1,
            own=agent,
            ally=agent,
            target=target,
            state_agent=agent,
            state_target=target,
            context=(),
            actions=Continuous(("guess",)),
            limit=self.limit,
            full_view=True,
        )

    def reset_many(self, seeds: np.ndarray) -> tuple[AimingWorld, Step]:
        number = np.array([np.random.default_rng(seed).uniform(-1.0, 1.0) for seed in seeds.tolist()])
        world = AimingWorld(number, np.zeros(len(seeds), np.int32))
        return world, self.show(world, np.zeros(len(seeds)))

    def step_many(self, world: AimingWorld, actions: np.ndarray, active: np.ndarray) -> tuple[AimingWorld, Step]:
        reward = 1.0 - np.square(actions[..., 0] - SIGNS * world.number[:, None]).mean(1)
        following = AimingWorld(world.number + 0.25 * active, world.time + active.astype(np.int32))
        return following, self.show(following, np.where(active, reward, -99.0))

    def show(self, world: AimingWorld, reward: np.ndarray) -> Step:
        episodes = len(world.time)
        signs = jnp.broadcast_to(jnp.asarray(SIGNS, jnp.float32), (episodes, 2))
        state = StateTokens(
            agents=jnp.stack([signs, 7.0 * signs], axis=-1),
            targets=jnp.stack([jnp.full(episodes, 5.0), jnp.asarray(world.number, jnp.float32)], axis=-1)[:, None],
            context=jnp.zeros((episodes, 0)),
            agent_present=jnp.ones((episodes, 2), bool),
            target_present=jnp.ones((episodes, 1), bool),
        )
        fallen, late = jnp.asarray(world.number > self.edge), jnp.asarray(world.time >= self.limit)
        return Step(
            tokens=full_view(state),
            state=state,
            available=jnp.ones((episodes, 2, 0), bool),
            reward=jnp.asarray(reward, jnp.float32),
            ended=fallen | late,
            terminated=fallen,
            success=jnp.zeros(episodes, bool),
        )

    def scene(self, world: AimingWorld) -> Scene:
        raise AssertionError("nobody draws this world")

    def at(self, numbers: list[float]) -> AimingWorld:
        """Worlds at chosen numbers."""
        return replace(self.reset_many(np.zeros(len(numbers), np.uint32))[0], number=np.array(numbers))
