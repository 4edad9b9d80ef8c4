"""A policy that acts by an actor and learns by a critic: everything but the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from flowrl.batch import Array, SampleBatch
from flowrl.errors import ConfigError
from flowrl.policy.dense import DenseActorCritic
from flowrl.policy.distributions import distribution_for, stored_tensors
from flowrl.policy.encoding import Encoder
from flowrl.policy.gae import gae
from flowrl.policy.networks import ActorCritic, ImageEncoder, one_thread, own_model, seeded
from flowrl.policy.normalizer import Moments, Normalizer
from flowrl.policy.policy import Policy, check_names, check_shape

if TYPE_CHECKING:
    from flowrl.config import AlgorithmConfig

__all__ = ["ActorCriticPolicy"]

# N envs (rows of a step), B rows of a batch, T rows of a fragment, O outputs of the network


class ActorCriticPolicy(Policy, ABC):
    """An actor-critic for Discrete, MultiDiscrete, MultiBinary and Box spaces, of actions and of observations; a subclass adds the loss.

    Of the config: `hiddens` or a `model` of the user's own, `gamma`, `observation_filter`, `normalize_rewards`; `lambda_` and
    `initial_log_std` where it has them. `config.seed` alone decides the initial weights, so that all workers begin alike;
    `seed` is for this worker's own choices.

    Fragments gain `action_logp` and `vf_preds` `[T]` (float32) while sampling, `advantages` and `value_targets` `[T]` afterwards,
    with normalised rewards also `discounted_returns`. Observations are stored as they came: the network normalises what it sees,
    by moments that move when the weights change, so that sampling and learning see the same.
    """

    def __init__(self, config: AlgorithmConfig, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> None:
        self.config: Any = config
        self.gamma, self.lambda_ = config.gamma, float(config.get("lambda_", 1.0))
        self.rng = np.random.default_rng(seed)
        self.distribution = distribution_for(action_space, config.get("initial_log_std", 0.0))
        self.encoder = Encoder(observation_space, config.observation_filter)
        self.network = _network(config, self.encoder, self.distribution.num_outputs)
        self.obs_filter = self.encoder.obs_filter
        self.reward_filter = Normalizer((1,)) if config.normalize_rewards else None
        self._unfinished: dict[int, float] = {}  # episode -> its discounted return so far
        taken = {*self.distribution.named_parameters(), "obs_filter", "reward_filter"}
        own = {name.partition(".")[0] for name, _ in (*self.network.named_parameters(), *self.network.named_buffers())}
        if taken & own:
            raise ConfigError(
                f"the model calls parts of itself {', '.join(sorted(taken & own))}: the policy has those, choose another name"
            )
        self._look_into_network()

    @abstractmethod
    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The scalar to minimise over the rows of `batch`, and statistics."""

    def act(self, obs: Array, explore: bool) -> tuple[Array, dict[str, Array]]:
        """Actions `[N]`: drawn from the policy with `explore`, else the likeliest; with their `action_logp` and `vf_preds`.

        Where the envs get an action brought into its bounds, the stored one is the one that was drawn.
        """
        outputs, values = self._forward(obs)
        stored, logp = self.distribution.draw(outputs, self.rng) if explore else self.distribution.likeliest(outputs)
        columns = {"actions": stored, "action_logp": logp, "vf_preds": values}
        return self.distribution.for_env(stored), columns

    def values(self, obs: Array) -> Array:
        """The critic's values `[N]` (float32) of observations `[N, ...]`."""
        return self._forward(obs)[1]

    def postprocess(self, fragment: SampleBatch) -> SampleBatch:
        """The fragment with `advantages` by `gae`, and `value_targets` = advantages + `vf_preds`.

        One more forward pass gives the values of the last observations of truncated and cut episodes. With `normalize_rewards`
        the `rewards` become the normalised ones, which are learned from.
        """
        if not all(np.isfinite(fragment[name]).all() for name in ("vf_preds", "action_logp") if name in fragment):
            raise FloatingPointError(
                "the network gave NaN or infinity for observations of this fragment: look at its weights and its input"
            )
        fragment = self.scale_rewards(fragment)
        terminateds, values = fragment["terminateds"], fragment["vf_preds"]
        ends = _ends(fragment)
        next_values = np.append(values[1:], np.float32(0.0))
        bootstrapped = np.flatnonzero(ends & ~terminateds)
        if len(bootstrapped):
            next_values[bootstrapped] = self.values(fragment["new_obs"][bootstrapped])
        advantages = gae(fragment["rewards"], values, next_values, terminateds, ends, self.gamma, self.lambda_)
        return fragment.with_columns(advantages=advantages.astype(np.float32), value_targets=(advantages + values).astype(np.float32))

    def scale_rewards(self, fragment: SampleBatch) -> SampleBatch:
        """The fragment with normalised `rewards` and a column `discounted_returns`; as it is without `normalize_rewards`.

        For a `postprocess` of your own, before anything is computed from the rewards; once a fragment.
        """
        if self.reward_filter is None:
            return fragment
        returns = self._discounted_returns(fragment)
        normalizer = self.reward_filter
        if not normalizer.moments.count:  # before the first batch was learned from: by what this fragment knows
            normalizer = Normalizer((1,))
            normalizer.update(Moments.of(returns[:, None]))
        return fragment.with_columns(rewards=normalizer.scaled(fragment["rewards"]), discounted_returns=returns)

    def evaluate(self, batch: SampleBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What a loss is made of, each `[B]` and with its graph: log-probabilities of the batch's actions, entropies, values."""
        outputs, values = self._checked(self.network(self.network_input(batch["obs"])), batch.count)
        logp, entropies = self.distribution.evaluate(outputs, stored_tensors(batch["actions"]))
        return logp, entropies, values

    def network_input(self, obs: Array) -> Any:
        """Observations `[B, ...]` as the network takes them: one-hot or normalised, in its dtype; see `Encoder`."""
        dtype = self._first.dtype
        return self.encoder.inputs(obs, dtype) if self.config.model is None else self.encoder.tree(obs, dtype)

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """Actor and critic, and what the distribution trains (`log_std`)."""
        return self._parameters

    def moments_of(self, batch: SampleBatch) -> dict[str, Any]:
        """Of the batch's observations and discounted returns, where they are normalised."""
        moments = self.encoder.moments_of(batch["obs"])
        if self.reward_filter is not None:
            if "discounted_returns" not in batch:
                raise ValueError(
                    f"normalize_rewards=True, and {type(self).__name__}.postprocess made no column 'discounted_returns': begin it with "
                    "fragment = self.scale_rewards(fragment)"
                )
            moments["reward_filter"] = Moments.of(batch["discounted_returns"][:, None])
        return moments

    def learned(self, info: Mapping[str, Any]) -> None:
        """Normalise by these moments too, from now on."""
        for name, normalizer in self._filters():
            if name in info:
                normalizer.update(info[name])

    def get_weights(self) -> dict[str, Array]:
        """A copy of the weights of actor and critic, and of the moments that normalise."""
        weights = super().get_weights()
        for name, normalizer in self._filters():
            weights |= {f"{name}.{part}": array for part, array in normalizer.state().items()}
        return weights

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Take over what `get_weights` gives, copied; all or nothing."""
        own = self.get_weights()
        check_names(weights, own)
        for name, weight in own.items():
            check_shape(name, weights[name], weight.shape)
        super().set_weights({name: weights[name] for name, _ in self._named_tensors()})
        for name, normalizer in self._filters():
            normalizer.set_state({part: weights[f"{name}.{part}"] for part in normalizer.state()})

    def _filters(self) -> Iterator[tuple[str, Normalizer]]:
        if self.obs_filter is not None:
            yield "obs_filter", self.obs_filter
        if self.reward_filter is not None:
            yield "reward_filter", self.reward_filter

    def _forward(self, obs: Array) -> tuple[Array, Array]:
        """The network's outputs `[N, O]` and values `[N]`: in numpy for the MLPs, else in one thread of torch."""
        if self._first.data_ptr() != self._seen:  # somebody called network.double(), say
            self._look_into_network()
        if self._dense is not None:
            return self._dense(self.encoder.flat(obs).astype(np.float32, copy=False))
        with torch.no_grad(), one_thread():
            outputs, values = self._checked(self.network(self.network_input(obs)), len(obs))
            return outputs.numpy(), values.numpy()

    def _checked(self, answer: Any, num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the network gave, if it is (outputs [N, O], values [N])."""
        expected = f"expected (outputs [{num_rows}, {self.distribution.num_outputs}], values [{num_rows}])"
        if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(part, torch.Tensor) for part in answer):
            raise ValueError(f"the model gave {type(answer).__name__}: {expected}")
        outputs, values = answer
        if values.shape == (num_rows, 1):
            values = values.squeeze(1)
        if outputs.shape != (num_rows, self.distribution.num_outputs) or values.shape != (num_rows,):
            raise ValueError(f"the model gave outputs {list(outputs.shape)} and values {list(values.shape)}: {expected}")
        return outputs, values

    def _discounted_returns(self, fragment: SampleBatch) -> Array:
        """Of each row, G_t = gamma * G_{t-1} + r_t: the rewards of its episode up to it, over the fragments it lies in."""
        going_on, self._unfinished = self._unfinished, {}
        returns = []
        total, before = 0.0, None
        for episode, reward in zip(fragment["eps_id"].tolist(), fragment["rewards"].tolist()):
            if episode != before:
                total, before = going_on.get(episode, 0.0), episode
            total = self.gamma * total + reward
            returns.append(total)
            self._unfinished[episode] = total
        return np.array(returns, np.float32)

    def _look_into_network(self) -> None:
        self.network.eval()
        self._parameters = dict(self.network.named_parameters()) | self.distribution.named_parameters()
        self._first = next(iter(self._parameters.values()))
        self._seen = self._first.data_ptr()
        network = self.network
        self._dense = DenseActorCritic(network) if isinstance(network, ActorCritic) and network.encoder is None else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy's layers have to be views of the copy's network.
        self.__dict__.update(state)
        self._look_into_network()


def _ends(fragment: SampleBatch) -> Array:
    """Rows whose next row is not the next step of the same episode."""
    eps_id = fragment["eps_id"]
    ends: Array = np.append(eps_id[1:] != eps_id[:-1], True) | fragment["terminateds"] | fragment["truncateds"]
    return ends


def _network(config: AlgorithmConfig, encoder: Encoder, num_outputs: int) -> nn.Module:
    """The config's own model, or the MLPs, over convolutions where there are images; its weights from the config's seed alone."""
    if config.model is not None:
        return own_model(config.model, config.seed, encoder.space, num_outputs)
    return seeded(config.seed, lambda: _own_network(config, encoder, num_outputs))


def _own_network(config: Any, encoder: Encoder, num_outputs: int) -> ActorCritic:
    share = config.get("vf_share_layers")
    if not encoder.image_spaces:
        return ActorCritic(encoder.num_flat, num_outputs, config.hiddens, bool(share))
    images, of_value = (ImageEncoder(encoder.num_flat, encoder.image_spaces, config.conv_filters) for _ in range(2))
    return ActorCritic(images.num_outputs, num_outputs, config.hiddens, bool(share), images, of_value if share is False else None)
