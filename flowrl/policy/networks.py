"""The networks of policies, in torch for learning and in numpy for acting.

Acting in numpy is three to four times faster for the few rows of a step, and it can be made independent of the number of
threads, which neither torch nor BLAS is by itself.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import nn

from flowrl.batch import Array
from flowrl.errors import ConfigError

__all__ = ["ActorCritic", "DenseLayers", "DenseQ", "QNetwork", "dense_layers", "forward_dense", "one_thread", "own_model", "relu", "seeded"]

# N rows, I inputs of a layer, O its outputs, A actions

Network = TypeVar("Network")
DenseLayers: TypeAlias = list[tuple[Array, Array]]
"""Weights `[I, O]` and biases `[O]` of each layer; the activation is between them."""

_MAX_MATRIX, _MAX_VECTOR = 1 << 18, 9216
"""Multiplications of a product up to which OpenBLAS takes one thread, for several rows and for one; beyond, its bits depend on how many."""


class ActorCritic(nn.Module):
    """Two separate MLPs with tanh between layers: `policy` gives the distribution's outputs (logits, means), `value` the state's value.

    Orthogonal weights with gain sqrt(2), 0.01 for the last layer of the policy and 1 for that of the value; no bias at the start
    (Huang et al., The 37 Implementation Details of Proximal Policy Optimization, 2022, details 2 and 13).
    """

    policy: nn.Sequential
    value: nn.Sequential

    def __init__(self, num_inputs: int, num_outputs: int, hiddens: Sequence[int]) -> None:
        super().__init__()
        self.policy = _mlp((num_inputs, *hiddens, num_outputs), last_gain=0.01)
        self.value = _mlp((num_inputs, *hiddens, 1), last_gain=1.0)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs `[N, O]` and values `[N]` for flat observations `[N, I]`."""
        return self.policy(obs), self.value(obs).squeeze(-1)


class QNetwork(nn.Module):
    """The values of A actions by an MLP with relu between layers, plain or dueling.

    `trunk` is the hidden layers. Plain: `q` reads all its last units. Dueling: `value` reads one half of them, `advantage` the other,

        Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a')

    (Wang et al., Dueling Network Architectures for Deep Reinforcement Learning, 2016, eq. 9, who also compare networks with as many
    weights in one stream as in two; we differ in leaving the gradient that both streams send into the trunk as it is, where they
    scale it by 1/sqrt(2)). Without hidden layers both read the observation. Initial weights as torch makes them: uniform in
    +-1/sqrt(I).
    """

    def __init__(self, num_inputs: int, num_actions: int, hiddens: Sequence[int], dueling: bool) -> None:
        super().__init__()
        sizes = (num_inputs, *hiddens)
        width = sizes[-1]
        self.trunk = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(sizes))
        self.dueling = dueling
        self.halves = (slice(width // 2), slice(width // 2, width)) if hiddens else (slice(width), slice(width))
        if dueling:
            of_value, of_advantage = (len(range(width)[half]) for half in self.halves)
            self.value, self.advantage = nn.Linear(of_value, 1), nn.Linear(of_advantage, num_actions)
        else:
            self.q = nn.Linear(width, num_actions)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Q-values `[N, A]` for flat observations `[N, I]`."""
        return self.values(self.activations(obs)[-1])

    def activations(self, obs: torch.Tensor) -> list[torch.Tensor]:
        """What each layer of the trunk reads and, last, what the heads read: `[N, I]` for each."""
        inputs = [obs]
        for layer in self.trunk:
            inputs.append(layer(inputs[-1]).relu_())
        return inputs

    def values(self, hidden: torch.Tensor) -> torch.Tensor:
        """Q-values `[N, A]` by what the heads read."""
        if not self.dueling:
            values: torch.Tensor = self.q(hidden)
            return values
        of_value, of_advantage = self.halves
        value: torch.Tensor = self.value(hidden[:, of_value])
        advantages: torch.Tensor = self.advantage(hidden[:, of_advantage])
        return value + advantages - advantages.mean(dim=1, keepdim=True)

    def gradients(self, activations: Sequence[torch.Tensor], slopes: torch.Tensor) -> list[torch.Tensor]:
        """A loss's gradient in the order of `parameters()`, where its derivative by the Q-values is `slopes` `[N, A]`.

        What autograd finds, without its graph.
        """
        hidden = activations[-1]
        if self.dueling:
            of_value, of_advantage = self.halves
            by_value, by_advantages = slopes.sum(dim=1, keepdim=True), slopes - slopes.mean(dim=1, keepdim=True)
            found = _of_layer(hidden[:, of_value], by_value) + _of_layer(hidden[:, of_advantage], by_advantages)
            slopes = torch.cat([by_value.mm(self.value.weight), by_advantages.mm(self.advantage.weight)], dim=1)
        else:
            found = _of_layer(hidden, slopes)
            slopes = slopes.mm(self.q.weight)
        layer: Any
        for at, layer in reversed(list(enumerate(self.trunk))):
            slopes *= activations[at + 1].sign()  # relu's derivative
            found = _of_layer(activations[at], slopes) + found
            if at:
                slopes = slopes.mm(layer.weight)
        return found


class DenseQ:
    """A `QNetwork` as numpy sees it, by views of the same memory: Q-values `[N, A]` for flat observations `[N, I]`."""

    def __init__(self, network: QNetwork) -> None:
        self.trunk = dense_layers(network.trunk)
        self.halves = network.halves
        self.heads = [dense_layers([head]) for head in ([network.value, network.advantage] if network.dueling else [network.q])]
        self.dtype = self.heads[0][0][0].dtype

    def __call__(self, inputs: Array) -> Array:
        """The same bits whatever the number of threads."""
        if len(self.heads) == 1:
            return forward_dense(self.trunk + self.heads[0], inputs, relu)
        hidden = relu(forward_dense(self.trunk, inputs, relu)) if self.trunk else inputs
        value, advantages = (forward_dense(head, hidden[:, half]) for head, half in zip(self.heads, self.halves))
        q_values: Array = value + advantages - advantages.mean(axis=1, keepdims=True)
        return q_values


def own_model(model: Callable[[Any, int], Any], seed: int, observation_space: Any, num_outputs: int) -> nn.Module:
    """The network of a config's `model`, its weights from the config's seed alone; refuses what is none."""
    if isinstance(model, nn.Module):
        raise ConfigError(
            f"model={model!r:.200} is a network already: pass its class, or a function, model(observation_space, num_outputs)"
        )
    try:
        inspect.signature(model).bind(observation_space, num_outputs)
    except TypeError as error:
        raise ConfigError(f"model={model!r:.200} is called as model(observation_space, num_outputs): {error}") from None
    network: Any = seeded(seed, lambda: model(observation_space, num_outputs))
    if not isinstance(network, nn.Module) or not list(network.parameters()):
        raise ConfigError(f"model={model!r} made {type(network).__name__}: expected a torch.nn.Module with parameters")
    return network


def seeded(seed: int, make: Callable[[], Network]) -> Network:
    """The network that `make` makes, its weights from `seed` alone, in any process; torch's global generator stays as it was."""
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        return make()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch works in one thread for a while: its bits (orthogonal weights, gradients) depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def dense_layers(mlp: Iterable[nn.Module]) -> DenseLayers:
    """The layers of an MLP as numpy sees them: views of the same memory, so they follow every change in place."""
    return [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in mlp if isinstance(layer, nn.Linear)]


def relu(values: Array, out: Array | None = None) -> Array:
    """max(0, values)."""
    positive: Array = np.maximum(values, 0.0, out=out)
    return positive


def forward_dense(layers: DenseLayers, inputs: Array, activation: Callable[..., Any] = np.tanh) -> Array:
    """The outputs `[N, O]` of an MLP for inputs `[N, I]`, the same bits whatever the number of threads."""
    hidden = inputs
    for weight, bias in layers[:-1]:
        hidden = _product(hidden, weight)
        hidden += bias
        activation(hidden, out=hidden)
    weight, bias = layers[-1]
    outputs = _product(hidden, weight)
    outputs += bias
    return outputs


def _product(inputs: Array, weight: Array) -> Array:
    if len(inputs) * weight.size <= (_MAX_MATRIX if len(inputs) > 1 else _MAX_VECTOR):
        # ndarray.dot costs half a microsecond less than np.matmul: a sixth of a forward pass on few rows.
        product: Array = inputs.dot(weight)
        return product
    with one_thread():
        return torch.mm(torch.tensor(inputs), torch.from_numpy(weight)).numpy()


def _of_layer(inputs: torch.Tensor, slopes: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of a layer's weight `[O, I]` and bias `[O]`, for what it read and the loss's derivative by its outputs `[N, O]`."""
    return [slopes.t().mm(inputs), slopes.sum(dim=0)]


def _mlp(sizes: Sequence[int], last_gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for num_inputs, num_outputs in itertools.pairwise(sizes):
        linear = nn.Linear(num_inputs, num_outputs)
        nn.init.orthogonal_(linear.weight, math.sqrt(2))
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    last = layers[-2]
    assert isinstance(last, nn.Linear)
    nn.init.orthogonal_(last.weight, last_gain)
    return nn.Sequential(*layers[:-1])
