"""Layers on the last axis. Leading axes are free; matrix products run on a flat [n, feature] view, which is what the CPU is fast at."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from comad.types import PRNGKey

Network = TypeVar("Network")


class Draws:
    """Hands out pieces of one long vector of random numbers in [-1, 1].

    Every call of the generator costs a quarter of a second of compile time, so a network makes one call for all its weights.
    """

    def __init__(self, numbers: Float[Array, " number"] | None = None) -> None:
        self.numbers = numbers
        self.used = 0

    def __call__(self, *shape: int) -> Float[Array, "..."]:
        """The next piece."""
        start, self.used = self.used, self.used + math.prod(shape)
        return jnp.zeros(shape) if self.numbers is None else self.numbers[start : self.used].reshape(shape)


def initialize(make: Callable[[Draws], Network], key: PRNGKey) -> Network:
    """A network with fresh weights."""
    return make(Draws(jax.random.uniform(key, (count_draws(make),), minval=-1.0)))


def count_draws(make: Callable[[Draws], Network]) -> int:
    """How many random numbers a network needs, found by making it in thought."""
    count = Draws()
    jax.eval_shape(lambda: make(count))
    return count.used


class Linear(eqx.Module):
    """An affine map."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    @classmethod
    def create(cls, draws: Draws, inputs: int, outputs: int) -> "Linear":
        """Uniform within one over the square root of the number of inputs."""
        bound = max(inputs, 1) ** -0.5
        return cls(bound * draws(inputs, outputs), bound * draws(outputs))

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """Apply to the last axis."""
        flat = affine(x.reshape(-1, x.shape[-1]), self.weight, self.bias)
        return flat.reshape(*x.shape[:-1], flat.shape[-1])

    def split(self, size: int) -> tuple["Linear", "Linear"]:
        """Two maps, of the first inputs and of the rest, whose sum is this map of both."""
        return Linear(self.weight[:size], jnp.zeros_like(self.bias)), Linear(self.weight[size:], self.bias)


@jax.custom_vjp
def affine(
    x: Float[Array, "n inputs"], weight: Float[Array, "inputs outputs"], bias: Float[Array, " outputs"]
) -> Float[Array, "n outputs"]:
    """A matrix product and a shift, whose gradients are matrix products too: a sum over rows is several times slower."""
    return x @ weight + bias[None]


def _affine_forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return affine(x, weight, bias), (x, weight)


def _affine_backward(kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array, Array]:
    x, weight = kept
    return slope @ weight.T, x.T @ slope, jnp.ones(len(slope)) @ slope


affine.defvjp(_affine_forward, _affine_backward)


def product(x: Float[Array, "*batch inputs"], weight: Float[Array, "inputs outputs"]) -> Float[Array, "*batch outputs"]:
    """A linear map of the last axis."""
    return (x.reshape(-1, x.shape[-1]) @ weight).reshape(*x.shape[:-1], weight.shape[-1])


class LayerNorm(eqx.Module):
    """Zero mean and unit spread over the features, then a learned scale and shift."""

    scale: Float[Array, " size"]
    shift: Float[Array, " size"]

    @classmethod
    def create(cls, size: int) -> "LayerNorm":
        """The plain normalization."""
        return cls(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
        """Apply to the last axis."""
        centered = x - x.mean(-1, keepdims=True)
        spread = jax.lax.rsqrt(jnp.square(centered).mean(-1, keepdims=True) + 1e-5)
        lead = (1,) * (x.ndim - 1)
        return centered * spread * self.scale.reshape(*lead, -1) + self.shift.reshape(*lead, -1)


class Mlp(eqx.Module):
    """Affine maps with ReLU between them."""

    layers: tuple[Linear, ...]

    @classmethod
    def create(cls, draws: Draws, sizes: Sequence[int]) -> "Mlp":
        """One layer per pair of neighboring sizes."""
        return cls(tuple(Linear.create(draws, *pair) for pair in itertools.pairwise(sizes)))

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """Apply to the last axis."""
        return self._after_first(self.layers[0](x))

    def hidden(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch hidden"]:
        """What the last layer is applied to, for those who put that off."""
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return x

    def of_pairs(self, one: Float[Array, "*batch left"], many: Float[Array, "*batch item right"]) -> Float[Array, "*batch item outputs"]:
        """Apply to one thing beside each of many, without writing the pairs down: the first layer sees the one thing once."""
        of_one, of_many = self.layers[0].split(one.shape[-1])
        return self._after_first(of_one(one)[..., None, :] + of_many(many))

    def _after_first(self, x: Float[Array, "*batch hidden"]) -> Float[Array, "*batch outputs"]:
        for layer in self.layers[1:]:
            x = layer(jax.nn.relu(x))
        return x


class Gru(eqx.Module):
    """A gated recurrent unit: one step of memory."""

    inputs: Linear
    hidden: Linear

    @classmethod
    def create(cls, draws: Draws, inputs: int, size: int) -> "Gru":
        """Reset, update and candidate gates side by side."""
        return cls(Linear.create(draws, inputs, 3 * size), Linear.create(draws, size, 3 * size))

    @property
    def size(self) -> int:
        """Width of the memory."""
        return self.hidden.weight.shape[0]

    def __call__(self, memory: Float[Array, "*batch size"], x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch size"]:
        """The next memory."""
        return self.step(memory, self.inputs(x))

    def step(self, memory: Float[Array, "*batch size"], gates: Float[Array, "*batch gates"]) -> Float[Array, "*batch size"]:
        """The next memory from the inputs' share of the gates, which a sequence computes for all its steps at once."""
        reset_in, update_in, candidate_in = jnp.split(gates, 3, axis=-1)
        reset_hidden, update_hidden, candidate_hidden = jnp.split(self.hidden(memory), 3, axis=-1)
        update = jax.nn.sigmoid(update_in + update_hidden)
        candidate = jnp.tanh(candidate_in + jax.nn.sigmoid(reset_in + reset_hidden) * candidate_hidden)
        return candidate + update * (memory - candidate)

    def over_time(
        self, memory: Float[Array, "batch agent size"], x: Float[Array, "batch time agent inputs"], first: Bool[Array, "batch time"]
    ) -> tuple[Float[Array, "batch time agent size"], Float[Array, "batch agent size"]]:
        """All memories of a sequence, forgetting wherever an episode begins."""
        gates = jnp.swapaxes(self.inputs(x), 0, 1)
        keep = jnp.swapaxes(~first, 0, 1)[..., None, None]

        def advance(memory: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            gates, keep = now
            memory = self.step(jnp.where(keep, memory, 0.0), gates)
            return memory, memory

        last, memories = jax.lax.scan(advance, memory, (gates, keep))
        return jnp.swapaxes(memories, 0, 1), last
