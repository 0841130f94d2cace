"""The enemies' script of SMAX: shoot the closest until it is dead or gone, else go where somebody is seen, else across the map.

The same decisions from the same keys as jaxmarl's HeuristicEnemySMAX, beside which the tests play it, but from positions: to compute
every enemy's observation first takes as long as the battle itself, and where nobody is seen it divides 0 by 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from comad.envs.units import REACH, SIGHT
from comad.types import PRNGKey


def command(
    positions: Float[Array, "unit 2"],
    alive: Bool[Array, " unit"],
    kinds: Int[Array, " enemy"],
    goals: Float[Array, "enemy 2"],
    grudges: Int[Array, " enemy"],
    key: PRNGKey,
    *,
    size: float,
    first_attack: int,
) -> tuple[Int[Array, " enemy"], Float[Array, "enemy 2"], Int[Array, " enemy"]]:
    """Every enemy's action, and what it remembers: where it goes while it sees nobody, and whom it attacks.

    Args:
        positions: of all units, allies first.
        alive: who still fights.
        kinds: of the enemies.
        goals: zero before the first step.
        grudges: the target last attacked, -1 for nobody.
        key: decides whom an enemy follows that sees several.
        size: of the map.
        first_attack: the action that attacks target 0, which is our last unit; the others follow backwards.
    """
    num_agents = len(positions) - len(kinds)
    places, targets = positions[num_agents:], positions[:num_agents][::-1]
    offsets = targets[None] - places[:, None]
    distances = jnp.sqrt(jnp.square(offsets).sum(-1))
    seen = alive[:num_agents][::-1][None] & alive[num_agents:, None] & (distances < jnp.asarray(SIGHT)[kinds][:, None])
    in_range = seen & (distances < jnp.asarray(REACH)[kinds][:, None])

    def reaches(target: Int[Array, " enemy"]) -> Bool[Array, " enemy"]:
        return jnp.take_along_axis(in_range, target[:, None], axis=1)[:, 0]

    closest = jnp.where(in_range, distances, jnp.inf).argmin(-1).astype(jnp.int32)
    attacked = jnp.where((grudges >= 0) & reaches(jnp.maximum(grudges, 0)), grudges, closest)
    across = jnp.where(((goals == 0).all(-1) & (grudges < 0))[:, None], size - places, goals)
    followed = jnp.take_along_axis(offsets, draw_seen(key, seen)[:, None, None], axis=1)[:, 0]
    east, north = jnp.where(seen.any(-1)[:, None], followed, across - places).T
    step = jnp.stack([north, east, -north, -east]).argmax(0).astype(jnp.int32)
    return jnp.where(in_range.any(-1), first_attack + attacked, step), across, jnp.where(reaches(attacked), attacked, -1)


def draw_seen(key: PRNGKey, seen: Bool[Array, "enemy target"]) -> Int[Array, " enemy"]:
    """One of those whom an enemy sees, each as likely as the others; its keys are jaxmarl's."""
    keys = jax.vmap(lambda key: jax.random.split(key)[0])(jax.random.split(key, len(seen)))
    chances = 1 - jax.vmap(jax.random.uniform)(keys)
    counted = seen.cumsum(-1)
    return (counted >= chances[:, None] * counted[:, -1:]).argmax(-1)
