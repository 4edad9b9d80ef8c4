"""Distributions over actions: drawn in numpy while sampling, differentiated in torch while learning.

One class for each kind of action space. The network's outputs are their parameters; what else is trained is their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from flowrl.batch import Array
from flowrl.env.spaces import joined, parts_of
from flowrl.errors import ConfigError

__all__ = ["Bernoulli", "Categorical", "Distribution", "Gaussian", "Joint", "MultiCategorical", "distribution_for", "stored_tensors"]

# N rows, O outputs of the network, A actions, D numbers of an action

_UNBOUNDED = float(np.finfo(np.float32).max)
"""A bound this far out is none."""
_MOST_CHOICES = 1 << 16
"""Whole numbers of a Box, over all its numbers, that a network may have an output each for."""
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """What an actor-critic asks of the distribution of its actions.

    "Stored" actions `[N, ...]` are those whose log-probability counts, "env" actions what the envs get for them.
    """

    num_outputs: int

    def draw(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Stored actions, drawn, and their log-probabilities `[N]`, for outputs `[N, O]`."""

    def likeliest(self, outputs: Array) -> tuple[Array, Array]:
        """The likeliest stored actions and their log-probabilities `[N]`."""

    def for_env(self, stored: Array) -> Array:
        """What the envs get: in their space's shape, dtype and bounds."""

    def evaluate(self, outputs: torch.Tensor, stored: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities `[N]` of stored actions, as `stored_tensors` gives them, and entropies `[N]`, with their graph."""

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """What is trained beside the network."""


def distribution_for(action_space: gym.Space[Any], initial_log_std: float = 0.0) -> Distribution:
    """The distribution for a space; whole numbers in a Box are choices too, a Dict's or Tuple's parts are independent."""
    if isinstance(action_space, gym.spaces.Discrete):
        return Categorical(int(action_space.n), int(action_space.start))
    if isinstance(action_space, gym.spaces.MultiDiscrete):
        return MultiCategorical(action_space, action_space.nvec.ravel().tolist(), action_space.start.ravel().tolist())
    if isinstance(action_space, gym.spaces.MultiBinary):
        return Bernoulli(action_space)
    if isinstance(action_space, gym.spaces.Box):
        return Gaussian(action_space, initial_log_std) if _is_of_floats(action_space) else _whole_numbers(action_space)
    parts = parts_of(action_space)
    if parts:
        return Joint({name: distribution_for(part, initial_log_std) for name, part in parts.items()})
    raise ConfigError(f"action space {action_space}: expected Discrete, MultiDiscrete, MultiBinary or Box, or a Dict or Tuple of these")


def stored_tensors(actions: Array) -> Any:
    """A column of stored actions as a tensor `[N, ...]`; of a Dict or Tuple a dict of one for each part."""
    if actions.dtype.names is None:
        return torch.tensor(actions)
    return {name: stored_tensors(actions[name]) for name in actions.dtype.names}


def _is_of_floats(space: gym.spaces.Box) -> bool:
    return space.dtype is not None and bool(np.issubdtype(space.dtype, np.floating))


def _whole_numbers(space: gym.spaces.Box) -> MultiCategorical:
    """One of the whole numbers from low to high, for each number of the box."""
    starts = [int(low) for low in space.low.ravel().tolist()]
    sizes = [int(high) - low + 1 for low, high in zip(starts, space.high.ravel().tolist())]
    if sum(sizes) > _MOST_CHOICES:
        raise ConfigError(
            f"action space {space}: a Box of whole numbers has an output for each of them, {sum(sizes):,} in all, at most "
            f"{_MOST_CHOICES:,}; wrap the env, into fewer numbers or a Box of floats"
        )
    return MultiCategorical(space, sizes, starts)


class Categorical:
    """One of A actions: the outputs are their logits. Stored as the env has it, from `start` on."""

    def __init__(self, num_actions: int, start: int = 0) -> None:
        self.num_outputs = num_actions
        self.start = start

    def draw(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """The first of A exponential clocks whose rates are the probabilities."""
        all_logp = _log_softmax(outputs)
        return self._chosen(all_logp, (np.exp(all_logp) / rng.standard_exponential(all_logp.shape)).argmax(axis=1))

    def likeliest(self, outputs: Array) -> tuple[Array, Array]:
        """The action with the highest logit."""
        all_logp = _log_softmax(outputs)
        return self._chosen(all_logp, all_logp.argmax(axis=1))

    def for_env(self, stored: Array) -> Array:
        """As they are."""
        return stored

    def evaluate(self, outputs: torch.Tensor, stored: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """By log-softmax."""
        all_logp = torch.log_softmax(outputs, dim=1)
        logp = all_logp.gather(1, (stored.long() - self.start)[:, None]).squeeze(1)
        finite = all_logp.clamp(min=torch.finfo(all_logp.dtype).min)  # a logit of -inf, which masks, adds nothing
        return logp, -(finite.exp() * finite).sum(dim=1)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """None."""
        return {}

    def _chosen(self, all_logp: Array, indices: Array) -> tuple[Array, Array]:
        return indices + self.start, all_logp[np.arange(len(indices)), indices]


class MultiCategorical:
    """D independent choices: the outputs are the logits of the first, then of the second, and so on. Stored as the env has them.

    Choice d is one of `sizes[d]` whole numbers from `starts[d]` on; `action_space` says their shape and dtype.
    """

    def __init__(self, action_space: gym.spaces.MultiDiscrete | gym.spaces.Box, sizes: Sequence[int], starts: Sequence[int]) -> None:
        self.space = action_space
        self.parts = [Categorical(size, start) for size, start in zip(sizes, starts, strict=True)]
        self.num_outputs = sum(part.num_outputs for part in self.parts)
        self._ends = np.cumsum([part.num_outputs for part in self.parts])[:-1].tolist()

    def draw(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Each choice by itself."""
        return self._joined([part.draw(logits, rng) for part, logits in zip(self.parts, np.split(outputs, self._ends, axis=1))])

    def likeliest(self, outputs: Array) -> tuple[Array, Array]:
        """The likeliest of each choice."""
        return self._joined([part.likeliest(logits) for part, logits in zip(self.parts, np.split(outputs, self._ends, axis=1))])

    def for_env(self, stored: Array) -> Array:
        """As they are."""
        return stored

    def evaluate(self, outputs: torch.Tensor, stored: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over the choices, which are independent."""
        choices = stored.reshape(len(stored), -1).unbind(dim=1)
        logits = torch.split(outputs, [part.num_outputs for part in self.parts], dim=1)
        each = [part.evaluate(own, choice) for part, own, choice in zip(self.parts, logits, choices)]
        return torch.stack([logp for logp, _ in each]).sum(dim=0), torch.stack([entropy for _, entropy in each]).sum(dim=0)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """None."""
        return {}

    def _joined(self, each: list[tuple[Array, Array]]) -> tuple[Array, Any]:
        actions = np.stack([chosen for chosen, _ in each], axis=1).reshape(-1, *self.space.shape)
        return actions.astype(self.space.dtype, copy=False), np.sum([logp for _, logp in each], axis=0)


class Bernoulli:
    """D independent bits: the outputs are the logits of each one's being 1. Stored as the env has them."""

    def __init__(self, action_space: gym.spaces.MultiBinary) -> None:
        self.space = action_space
        self.num_outputs = math.prod(action_space.shape)

    def draw(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """A bit is 1 where an even draw is below its probability."""
        return self._with_logp(outputs, rng.random(outputs.shape) < np.exp(-np.logaddexp(0.0, -outputs)))

    def likeliest(self, outputs: Array) -> tuple[Array, Array]:
        """The likelier value of each bit; 0 where both are as likely."""
        return self._with_logp(outputs, outputs > 0)

    def for_env(self, stored: Array) -> Array:
        """As they are."""
        return stored

    def evaluate(self, outputs: torch.Tensor, stored: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over the bits, which are independent."""
        logp_of_1, logp_of_0 = nn.functional.logsigmoid(outputs), nn.functional.logsigmoid(-outputs)
        logp = torch.where(stored.reshape(len(stored), -1).bool(), logp_of_1, logp_of_0)
        return logp.sum(dim=1), -(logp_of_1.exp() * logp_of_1 + logp_of_0.exp() * logp_of_0).sum(dim=1)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """None."""
        return {}

    def _with_logp(self, outputs: Array, bits: Array) -> tuple[Array, Array]:
        logp: Array = -np.logaddexp(0.0, np.where(bits, -outputs, outputs)).sum(axis=1)
        return bits.reshape(-1, *self.space.shape).astype(self.space.dtype), logp


class Gaussian:
    """Independent normal distributions for a Box of floats: the outputs are the means, `log_std` `[D]` is trained beside the network.

    Stored is what was drawn, u, unbounded, and its log-probability is u's. The env gets u brought into the box, number by number:

        low, high       low + (clip(u, -1, 1) + 1) / 2 * (high - low)    -1 is low, 0 the middle, 1 high
        low only        low + softplus(u)
        high only       high - softplus(-u)
        none            u

    `log_std` depends on no state (Huang et al., The 37 Implementation Details of Proximal Policy Optimization, 2022, details 24-26;
    we differ in scaling to the bounds before clipping there, so that a box of any size is explored alike).
    """

    def __init__(self, action_space: gym.spaces.Box, initial_log_std: float = 0.0) -> None:
        if not _is_of_floats(action_space):
            raise ConfigError(f"action space {action_space}: expected a Box of floats, take distribution_for(space) for whole numbers")
        self.space = action_space
        self.num_outputs = math.prod(action_space.shape)
        self.log_std = nn.Parameter(torch.full((self.num_outputs,), float(initial_log_std)))
        low, high = action_space.low.astype(np.float64), action_space.high.astype(np.float64)
        has_low, has_high = low > -_UNBOUNDED, high < _UNBOUNDED
        self._both, self._low_only, self._high_only = has_low & has_high, has_low & ~has_high, has_high & ~has_low
        self._scale = np.where(self._both, (np.where(has_high, high, 0) - np.where(has_low, low, 0)) / 2, 1.0)
        self._middle = np.where(self._both, (np.where(has_high, high, 0) + np.where(has_low, low, 0)) / 2, 0.0)
        self._bounds = np.where(has_low, low, 0.0), np.where(has_high, high, 0.0)

    def draw(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Means plus noise."""
        noise = rng.standard_normal(outputs.shape, np.float32)
        log_std = self.log_std.detach().numpy()
        return self._shaped(outputs + np.exp(log_std) * noise), self._logp(noise, log_std)

    def likeliest(self, outputs: Array) -> tuple[Array, Array]:
        """The means."""
        return self._shaped(outputs), self._logp(np.zeros_like(outputs), self.log_std.detach().numpy())

    def for_env(self, stored: Array) -> Array:
        """In the box, in its dtype, a new array."""
        u = stored.astype(np.float64)
        inside = np.where(self._both, np.clip(u, -1.0, 1.0), u) * self._scale + self._middle
        if self._low_only.any() or self._high_only.any():
            low, high = self._bounds
            inside = np.where(self._low_only, low + np.logaddexp(0.0, u), inside)
            inside = np.where(self._high_only, high - np.logaddexp(0.0, -u), inside)
        bounded: Array = np.clip(inside.astype(self.space.dtype), self.space.low, self.space.high)
        return bounded

    def evaluate(self, outputs: torch.Tensor, stored: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of u, not of what the env got."""
        noise = (stored.reshape(len(stored), -1) - outputs) * (-self.log_std).exp()
        logp = (-0.5 * noise.square() - self.log_std - _HALF_LOG_TWO_PI).sum(dim=1)
        return logp, (self.log_std + 0.5 + _HALF_LOG_TWO_PI).sum().expand(len(stored))

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """`log_std`."""
        return {"log_std": self.log_std}

    def _shaped(self, actions: Array) -> Array:
        return actions.reshape(-1, *self.space.shape)

    def _logp(self, noise: Array, log_std: Array) -> Array:
        logp: Array = (-0.5 * noise * noise - log_std - np.float32(_HALF_LOG_TWO_PI)).sum(axis=1)
        return logp


class Joint:
    """The parts of a Dict or Tuple action, each with a distribution of its own, independent of the others.

    The outputs are those of the first part, then of the second, and so on. Stored in a field for each part; see `flowrl.env.spaces`.
    """

    def __init__(self, parts: Mapping[str, Distribution]) -> None:
        self.parts = dict(parts)
        self.num_outputs = sum(part.num_outputs for part in self.parts.values())
        self._sizes = [part.num_outputs for part in self.parts.values()]
        self._ends = np.cumsum(self._sizes)[:-1].tolist()

    def draw(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Each part by itself."""
        return self._joined([part.draw(own, rng) for part, own in self._with_outputs(outputs)])

    def likeliest(self, outputs: Array) -> tuple[Array, Array]:
        """The likeliest of each part."""
        return self._joined([part.likeliest(own) for part, own in self._with_outputs(outputs)])

    def for_env(self, stored: Array) -> Array:
        """Each part as its distribution has it."""
        return joined({name: part.for_env(stored[name]) for name, part in self.parts.items()})

    def evaluate(self, outputs: torch.Tensor, stored: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over the parts, which are independent."""
        owns = torch.split(outputs, self._sizes, dim=1)
        each = [part.evaluate(own, stored[name]) for own, (name, part) in zip(owns, self.parts.items())]
        return torch.stack([logp for logp, _ in each]).sum(dim=0), torch.stack([entropy for _, entropy in each]).sum(dim=0)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Those of the parts, each behind its name: "steer.log_std"."""
        return {f"{name}.{own}": parameter for name, part in self.parts.items() for own, parameter in part.named_parameters().items()}

    def _with_outputs(self, outputs: Array) -> Iterator[tuple[Distribution, Array]]:
        return zip(self.parts.values(), np.split(outputs, self._ends, axis=1))

    def _joined(self, each: list[tuple[Array, Array]]) -> tuple[Array, Any]:
        return joined(dict(zip(self.parts, (chosen for chosen, _ in each)))), np.sum([logp for _, logp in each], axis=0)


def _log_softmax(logits: Array) -> Array:
    log_total: Array = np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return logits - log_total
