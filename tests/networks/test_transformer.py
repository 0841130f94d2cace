"""The layer with a memory token equals the plain one in which memory is a token like any other; the mixer never punishes a better agent."""

import jax
import jax.numpy as jnp
import numpy as np
from recorded import FULL_VIEW

from comad.networks.attention import WIDTH
from comad.networks.layers import LayerNorm, initialize
from comad.networks.mixer import AttentionMixer
from comad.networks.transformer import Transformer
from comad.types import StateTokens

KEY = jax.random.key(3)


def naive(layer: Transformer, tokens: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """One layer over [token, width] in NumPy, written as it is taught."""

    def norm(x: np.ndarray, of: LayerNorm) -> np.ndarray:
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * np.asarray(of.scale) + np.asarray(of.shift)

    query, key, value = (tokens @ np.asarray(weight) for weight in (layer.query, layer.key, layer.value))
    scores = np.where(seen[None], query @ key.T / 8.0, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    attended = (weights / weights.sum(-1, keepdims=True)) @ value
    x = norm(tokens + attended @ np.asarray(layer.out.weight) + np.asarray(layer.out.bias), layer.after_attention)
    grow, shrink = layer.feed_forward.layers
    inner = np.maximum(x @ np.asarray(grow.weight) + np.asarray(grow.bias), 0.0)
    x = norm(x + inner @ np.asarray(shrink.weight) + np.asarray(shrink.bias), layer.after_feed_forward)
    return x @ np.asarray(layer.last.weight) + np.asarray(layer.last.bias)


def test_memory_is_a_token_like_any_other_that_starts_afresh_with_an_episode() -> None:
    layer = initialize(Transformer.create, KEY)
    entities = jax.random.normal(jax.random.key(1), (2, 5, 3, 4, WIDTH))
    seen = jax.random.bernoulli(jax.random.key(2), 0.7, (2, 5, 3, 4)).at[..., 0].set(True)
    first = jnp.zeros((2, 5), bool).at[0, 0].set(True).at[1, 3].set(True)
    start = jax.random.normal(KEY, (2, 3, WIDTH))
    out, last = layer.over_time(start, entities[..., :2, :], entities, seen, first)
    for row in range(2):
        for agent in range(3):
            memory = np.asarray(start[row, agent])
            for time in range(5):
                memory = np.zeros(WIDTH) if first[row, time] else memory
                tokens = np.concatenate([np.asarray(entities[row, time, agent]), memory[None]])
                expected = naive(layer, tokens, np.append(np.asarray(seen[row, time, agent]), True))
                assert np.allclose(out[row, time, agent], expected[:2], atol=1e-4)
                memory = expected[-1]
            assert np.allclose(last[row, agent], memory, atol=1e-4)


def test_without_memory_the_layer_is_the_plain_one() -> None:
    layer = initialize(Transformer.create, KEY)
    entities, seen = jax.random.normal(jax.random.key(1), (1, 4, WIDTH)), jnp.array([[True, True, False, True]])
    expected = naive(layer, np.asarray(entities[0]), np.asarray(seen[0]))
    assert np.allclose(layer(entities[:, :1], entities, seen)[0], expected[:1], atol=1e-4)


def test_the_mixer_rises_with_every_agent_and_ignores_those_who_are_gone() -> None:
    mixer = initialize(lambda draws: AttentionMixer.create(draws, FULL_VIEW.spec), KEY)
    agents, targets = jax.random.normal(KEY, (6, 2, 2)), jax.random.normal(jax.random.key(1), (6, 2, 2))
    present = jnp.ones((6, 2), bool).at[0, 1].set(False)
    mixing = mixer(StateTokens(agents, targets, jnp.zeros((6, 0)), present, jnp.ones((6, 2), bool)))
    slope = jax.grad(lambda values: mixing(values).sum())(jnp.zeros((6, 2)))
    assert (slope >= 0).all() and (slope[1:] > 0).all() and slope[0, 1] == 0.0
