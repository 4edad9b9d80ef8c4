"""The networks of policies, in torch for learning and in numpy for acting.

Acting in numpy is three to four times faster for the few rows of a step, and it can be made independent of the number of
threads, which neither torch nor BLAS is by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from torch import nn

from flowrl.batch import Array

__all__ = ["ActorCritic", "DenseLayers", "dense_layers", "forward_dense", "one_thread", "seeded"]

# N rows, I inputs of a layer, O its outputs

Network = TypeVar("Network")
DenseLayers: TypeAlias = list[tuple[Array, Array]]
"""Weights `[I, O]` and biases `[O]` of each layer; tanh between them."""

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


def dense_layers(mlp: nn.Sequential) -> DenseLayers:
    """The layers of an MLP as numpy sees them: views of the same memory, so they follow every change in place."""
    return [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in mlp if isinstance(layer, nn.Linear)]


def forward_dense(layers: DenseLayers, inputs: Array) -> Array:
    """The outputs `[N, O]` of an MLP for inputs `[N, I]`, the same bits whatever the number of threads."""
    hidden = inputs
    for weight, bias in layers[:-1]:
        hidden = _product(hidden, weight)
        hidden += bias
        np.tanh(hidden, out=hidden)
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
