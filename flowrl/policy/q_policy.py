"""A policy that acts by the values of its actions: everything but the loss."""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from flowrl.batch import Array, SampleBatch
from flowrl.errors import ConfigError
from flowrl.policy.dense import DenseQ
from flowrl.policy.encoding import Encoder
from flowrl.policy.networks import ImageEncoder, QNetwork, one_thread, own_model, seeded
from flowrl.policy.policy import Policy, check_names, check_shape
from flowrl.replay.n_step import n_step
from flowrl.schedules import value_at

if TYPE_CHECKING:
    from flowrl.config import AlgorithmConfig

__all__ = ["QPolicy"]

# N envs (rows of a step), B rows of a batch, A actions


class QPolicy(Policy, ABC):
    """Q-values for Discrete actions, epsilon-greedy, with a target network; a subclass adds the loss.

    Of the config: `hiddens` and `dueling`, or a `model` of the user's own, `gamma`, `n_step`, `epsilon_schedule`,
    `observation_filter`. `config.seed` alone decides the initial weights, so that all workers begin alike; `seed` is for this
    worker's own choices.

    `network` is trained, and is what acts and what `get_weights` gives; `target` is a copy of it that only `update_target` moves, and
    that never leaves the worker. Both see observations normalised by the same moments, those of the batches that were trained on.
    """

    target: nn.Module

    def __init__(self, config: AlgorithmConfig, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> None:
        if not isinstance(action_space, gym.spaces.Discrete):
            raise ConfigError(
                f"action space {action_space}: Q-learning has a value for each of a few actions, expected Discrete; wrap the env, or "
                "take an algorithm with a policy network (PPO, A2C)"
            )
        self.config: Any = config
        self.rng = np.random.default_rng(seed)
        self.num_actions, self.first_action = int(action_space.n), int(action_space.start)
        self.encoder = Encoder(observation_space, config.observation_filter)
        self.network = _network(config, self.encoder, self.num_actions)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.obs_filter = self.encoder.obs_filter
        own = {name.partition(".")[0] for name, _ in (*self.network.named_parameters(), *self.network.named_buffers())}
        if "obs_filter" in own:
            raise ConfigError("the model calls a part of itself obs_filter: the policy has that, choose another name")
        self._look_into_network()

    @abstractmethod
    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, Any]]:
        """The scalar to minimise over the rows of `batch`, and statistics."""

    @property
    def epsilon(self) -> float:
        """The share of actions drawn evenly from all, for exploration: `epsilon_schedule`, by the env steps that the run has sampled."""
        return value_at(self.config.epsilon_schedule, self.num_steps_sampled, 0.0)

    def act(self, obs: Array, explore: bool) -> tuple[Array, dict[str, Array]]:
        """Actions `[N]`, from the space's `start` on: those of the highest value (the first of equal ones), epsilon-greedy with `explore`.

        Exploring draws two numbers a row, whatever epsilon is and whatever comes of it.
        """
        chosen = self.q_values(obs).argmax(axis=1)
        if explore:
            coins, evenly = self.rng.random((2, len(obs)))
            chosen = np.where(coins < self.epsilon, (evenly * self.num_actions).astype(np.int64), chosen)
        return chosen + self.first_action, {}

    def q_values(self, obs: Array) -> Array:
        """The network's values `[N, A]` for observations `[N, ...]`: in numpy for the MLP, else in one thread of torch."""
        if self._first.data_ptr() != self._seen:  # somebody called network.double(), say
            self._look_into_network()
        if self._dense is None:
            with torch.no_grad(), one_thread():
                values = self.evaluate(self.network, obs).numpy()
        else:
            values = self._dense(self.encoder.flat(obs).astype(self._dense.dtype, copy=False))
        if not np.isfinite(values).all():
            raise FloatingPointError("the network gave NaN or infinity for these observations: look at its weights and its input")
        return values

    def evaluate(self, network: nn.Module, obs: Array) -> torch.Tensor:
        """The values `[B, A]` that `network` or `target` gives for observations `[B, ...]`, with their graph."""
        answer = network(self.network_input(obs))
        outputs = answer[0] if isinstance(answer, tuple) else answer
        if not isinstance(outputs, torch.Tensor) or outputs.shape != (len(obs), self.num_actions):
            gave = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
            raise ValueError(f"the model gave {gave}: expected Q-values [{len(obs)}, {self.num_actions}], or a tuple that begins with them")
        return outputs

    def network_input(self, obs: Array) -> Any:
        """What `evaluate` shows the network of observations `[B, ...]`: one-hot or normalised, in its dtype; see `Encoder`."""
        dtype = self._first.dtype
        return self.encoder.inputs(obs, dtype) if self.config.model is None else self.encoder.tree(obs, dtype)

    @property
    def is_on_cpu(self) -> bool:
        """Whether numpy can look at the network."""
        return self._first.device.type == "cpu"

    def action_indices(self, batch: SampleBatch) -> Array:
        """Which of the A values belongs to each row's action, `[B]` (int64, a new array)."""
        indices: Array = batch["actions"].astype(np.int64) - self.first_action
        return indices

    def postprocess(self, fragment: SampleBatch) -> SampleBatch:
        """The fragment with the rows of `n_step` windows, and their `discounts`."""
        return n_step(fragment, self.config.n_step, self.config.gamma)

    def update_target(self) -> None:
        """Copy the network to the target, in place."""
        with torch.no_grad():
            for target, own in zip(_tensors(self.target), _tensors(self.network), strict=True):
                target.copy_(own)

    def get_exploration_info(self) -> dict[str, float]:
        """`epsilon`."""
        return {"epsilon": self.epsilon}

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """The network's."""
        return self._parameters

    def moments_of(self, batch: SampleBatch) -> dict[str, Any]:
        """Of the batch's observations, where they are normalised."""
        return self.encoder.moments_of(batch["obs"])

    def learned(self, info: Mapping[str, Any]) -> None:
        """Normalise by these moments too, from now on."""
        if self.obs_filter is not None and "obs_filter" in info:
            self.obs_filter.update(info["obs_filter"])

    def get_weights(self) -> dict[str, Array]:
        """A copy of the network's weights, and of the moments that normalise: what acting takes. The target is not among them."""
        moments = {} if self.obs_filter is None else self.obs_filter.state()
        return super().get_weights() | {f"obs_filter.{part}": array for part, array in moments.items()}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Take over what `get_weights` gives, copied; all or nothing. The target stays as it is."""
        own = self.get_weights()
        check_names(weights, own)
        for name, weight in own.items():
            check_shape(name, weights[name], weight.shape)
        super().set_weights({name: weights[name] for name, _ in self._named_tensors()})
        if self.obs_filter is not None:
            self.obs_filter.set_state({part: weights[f"obs_filter.{part}"] for part in self.obs_filter.state()})

    def _look_into_network(self) -> None:
        self.network.eval()
        self._parameters = dict(self.network.named_parameters())
        self._first = next(iter(self._parameters.values()))
        self._seen = self._first.data_ptr()
        self.target.eval().to(self._first.dtype)
        self._dense = DenseQ(self.network) if type(self.network) is QNetwork and self.network.encoder is None else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy's layers have to be views of the copy's network.
        self.__dict__.update(state)
        self._look_into_network()


def _network(config: Any, encoder: Encoder, num_actions: int) -> nn.Module:
    """The config's own model, or the MLP, over convolutions where there are images; its weights from the config's seed alone."""
    if config.model is not None:
        return own_model(config.model, config.seed, encoder.space, num_actions)
    return seeded(config.seed, lambda: _own_network(config, encoder, num_actions))


def _own_network(config: Any, encoder: Encoder, num_actions: int) -> QNetwork:
    if not encoder.image_spaces:
        return QNetwork(encoder.num_flat, num_actions, config.hiddens, config.dueling)
    images = ImageEncoder(encoder.num_flat, encoder.image_spaces, config.conv_filters)
    return QNetwork(images.num_outputs, num_actions, config.hiddens, config.dueling, images)


def _tensors(network: nn.Module) -> itertools.chain[torch.Tensor]:
    return itertools.chain(network.parameters(), network.buffers())
