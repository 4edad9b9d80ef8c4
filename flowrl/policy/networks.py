"""The networks of policies, in torch: MLPs, convolutions for images, and what makes a model of the user's own."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from flowrl.errors import ConfigError

__all__ = ["ActorCritic", "ImageEncoder", "QNetwork", "one_thread", "own_model", "seeded"]

# N rows, I inputs of a layer, O its outputs, A actions

Filters: TypeAlias = Sequence[tuple[int, int, int]]
"""Of each layer of convolutions: filters, width of the kernel, stride."""
LARGE, LARGE_FILTERS, LARGE_UNITS = 36, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512
"""Images at least so wide and high, their convolutions and the units of the layer after them: those of Mnih et al., 2015."""
SMALL_FILTERS, SMALL_UNITS = ((16, 3, 1),), 128
"""Of smaller images: those of Young and Tian, MinAtar, 2019."""

Network = TypeVar("Network")


class ImageEncoder(nn.Module):
    """Reads flat observations and images as one row of features: the flat ones as they are, each image by convolutions of its own.

    `filters` are those of each layer, with relu after it, and after the last one comes a dense layer with relu. None: those of
    Mnih et al., Human-level control through deep reinforcement learning, 2015, for images of 36 x 36 and more, else those of Young and
    Tian, MinAtar, 2019.
    """

    def __init__(self, num_flat: int, image_spaces: Sequence[gym.spaces.Box], filters: Filters | None = None) -> None:
        super().__init__()
        images = [_Convolutions(space, filters) for space in image_spaces]
        self.images = nn.ModuleList(images)
        self.num_outputs = num_flat + sum(image.num_outputs for image in images)

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Features `[N, O]` for flat observations `[N, I]` and, after them, one batch of each image, `[N, H, W, C]` or `[N, C, H, W]`."""
        flat, *images = inputs
        return torch.cat([flat, *(read(image) for read, image in zip(self.images, images, strict=True))], dim=1)


class _Convolutions(nn.Module):
    """One image: its numbers brought to 0..1 where they are whole ones, convolutions, a dense layer. Channels are its shortest side."""

    def __init__(self, space: gym.spaces.Box, filters: Filters | None) -> None:
        super().__init__()
        self.has_channels_first = space.shape[0] < space.shape[2]
        channels, height, width = space.shape if self.has_channels_first else (space.shape[2], *space.shape[:2])
        low, high = (float(space.low.min()), float(space.high.max())) if _is_whole(space) else (0.0, 1.0)
        self.low, self.range = low, high - low
        is_large = min(height, width) >= LARGE
        layers: list[nn.Module] = []
        for num_filters, kernel, stride in filters or (LARGE_FILTERS if is_large else SMALL_FILTERS):
            kernel = kernel if filters else min(kernel, height, width)
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
            if min(height, width) < 1:
                raise ConfigError(f"conv_filters={filters}: they read more than an image of shape {space.shape} has, take smaller ones")
            layers += [nn.Conv2d(channels, num_filters, kernel, stride), nn.ReLU()]
            channels = num_filters
        self.num_outputs = LARGE_UNITS if is_large else SMALL_UNITS
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, self.num_outputs), nn.ReLU())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first: Any = self.layers[0]
        pixels = image.to(first.weight.dtype)
        if self.low or self.range != 1.0:
            pixels = (pixels - self.low) / self.range
        features: torch.Tensor = self.layers(pixels if self.has_channels_first else pixels.permute(0, 3, 1, 2))
        return features


class ActorCritic(nn.Module):
    """MLPs with tanh between layers: `policy` gives the distribution's outputs (logits, means), `value` the state's value.

    Two separate ones; with `share_layers` they have all hidden layers, the `trunk`, in common. With an `encoder` they read what it makes
    of images, or the value what its own `value_encoder` makes of them. Orthogonal weights with gain sqrt(2), 0.01 for the last layer of
    the policy and 1 for that of the value; no bias at the start (Huang et al., The 37 Implementation Details of Proximal Policy
    Optimization, 2022, details 2 and 13).
    """

    trunk: nn.Sequential
    policy: nn.Sequential
    value: nn.Sequential

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        hiddens: Sequence[int],
        share_layers: bool = False,
        encoder: ImageEncoder | None = None,
        value_encoder: ImageEncoder | None = None,
    ) -> None:
        super().__init__()
        shared, own = (hiddens, ()) if share_layers else ((), hiddens)
        width = (num_inputs, *shared)[-1]
        self.encoder, self.value_encoder = encoder, value_encoder
        self.trunk = nn.Sequential(*_tanh_layers((num_inputs, *shared)))
        self.policy = _mlp((width, *own, num_outputs), last_gain=0.01)
        self.value = _mlp((width, *own, 1), last_gain=1.0)
        for part in (encoder, value_encoder):
            if part is not None:
                part.apply(_orthogonal)

    def forward(self, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs `[N, O]` and values `[N]` for flat observations `[N, I]`; with an encoder for what that takes."""
        hidden = self.trunk(inputs if self.encoder is None else self.encoder(inputs))
        of_value = hidden if self.value_encoder is None else self.value_encoder(inputs)
        return self.policy(hidden), self.value(of_value).squeeze(-1)


class QNetwork(nn.Module):
    """The values of A actions by an MLP with relu between layers, plain or dueling.

    `trunk` is the hidden layers. Plain: `q` reads all its last units. Dueling: `value` reads one half of them, `advantage` the other,

        Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a')

    (Wang et al., Dueling Network Architectures for Deep Reinforcement Learning, 2016, eq. 9, who also compare networks with as many
    weights in one stream as in two; we differ in leaving the gradient that both streams send into the trunk as it is, where they
    scale it by 1/sqrt(2)). Without hidden layers both read the observation. With an `encoder` all read what it makes of images. Initial
    weights as torch makes them: uniform in +-1/sqrt(I).
    """

    def __init__(
        self, num_inputs: int, num_actions: int, hiddens: Sequence[int], dueling: bool, encoder: ImageEncoder | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
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

    def forward(self, inputs: Any) -> torch.Tensor:
        """Q-values `[N, A]` for flat observations `[N, I]`; with an encoder for what that takes."""
        return self.values(self.activations(inputs if self.encoder is None else self.encoder(inputs))[-1])

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


def _of_layer(inputs: torch.Tensor, slopes: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of a layer's weight `[O, I]` and bias `[O]`, for what it read and the loss's derivative by its outputs `[N, O]`."""
    return [slopes.t().mm(inputs), slopes.sum(dim=0)]


def _mlp(sizes: Sequence[int], last_gain: float) -> nn.Sequential:
    *layers, last, _ = _tanh_layers(sizes)
    assert isinstance(last, nn.Linear)
    nn.init.orthogonal_(last.weight, last_gain)
    return nn.Sequential(*layers, last)


def _tanh_layers(sizes: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for num_inputs, num_outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(num_inputs, num_outputs), nn.Tanh()]
        _orthogonal(layers[-2])
    return layers


def _orthogonal(layer: nn.Module) -> None:
    if isinstance(layer, nn.Linear | nn.Conv2d):
        nn.init.orthogonal_(layer.weight, math.sqrt(2))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def _is_whole(space: gym.spaces.Box) -> bool:
    return bool(np.issubdtype(space.dtype, np.integer))
