"""A policy that acts by an actor and learns by a critic: everything but the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from flowrl.batch import Array, SampleBatch
from flowrl.policy.gae import gae
from flowrl.policy.networks import ActorCritic, dense_layers, forward_dense

__all__ = ["ActorCriticPolicy"]

# N envs (rows of a step), B rows of a batch, A actions


class ActorCriticPolicy(ABC):
    """An MLP actor-critic for Discrete actions and Box observations (flattened, as float32); a subclass adds the loss.

    `weights_seed` alone decides the initial weights, so that all workers begin alike; `seed` is for this worker's own choices.
    Fragments gain `action_logp` and `vf_preds` `[T]` (float32) while sampling, `advantages` and `value_targets` `[T]` afterwards.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        *,
        hiddens: Sequence[int],
        gamma: float,
        lambda_: float,
        weights_seed: int,
        seed: np.random.SeedSequence,
    ) -> None:
        self.gamma, self.lambda_ = gamma, lambda_
        self.first_action = int(action_space.start)
        self.rng = np.random.default_rng(seed)
        num_inputs = int(np.prod(observation_space.shape))
        self.network = ActorCritic.seeded(num_inputs, int(action_space.n), hiddens, weights_seed)
        self._look_into_network()

    @abstractmethod
    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The scalar to minimise over the rows of `batch`, and statistics."""

    def act(self, obs: Array, explore: bool) -> tuple[Array, dict[str, Array]]:
        """Actions `[N]`: drawn from the policy with `explore`, else the likeliest; with their `action_logp` and `vf_preds`."""
        rows = _flat(obs)
        all_logp = forward_dense(self._policy_layers, rows)
        all_logp -= np.logaddexp.reduce(all_logp, axis=1, keepdims=True)
        if explore:  # the first of A exponential clocks with these rates
            indices = (np.exp(all_logp) / self.rng.standard_exponential(all_logp.shape)).argmax(axis=1)
        else:
            indices = all_logp.argmax(axis=1)
        logp = all_logp[np.arange(len(rows)), indices]
        return indices + self.first_action, {"action_logp": logp, "vf_preds": self._values(rows)}

    def values(self, obs: Array) -> Array:
        """The critic's values `[N]` (float32) of observations `[N, ...]`."""
        return self._values(_flat(obs))

    def postprocess(self, fragment: SampleBatch) -> SampleBatch:
        """The fragment with `advantages` by `gae`, and `value_targets` = advantages + `vf_preds`.

        One more forward pass gives the values of the last observations of truncated and cut episodes.
        """
        terminateds, eps_id, values = fragment["terminateds"], fragment["eps_id"], fragment["vf_preds"]
        ends = np.append(eps_id[1:] != eps_id[:-1], True) | terminateds | fragment["truncateds"]
        next_values = np.append(values[1:], np.float32(0.0))
        bootstrapped = np.flatnonzero(ends & ~terminateds)
        if len(bootstrapped):
            next_values[bootstrapped] = self.values(fragment["new_obs"][bootstrapped])
        advantages = gae(fragment["rewards"], values, next_values, terminateds, ends, self.gamma, self.lambda_)
        return fragment.with_columns(advantages=advantages.astype(np.float32), value_targets=(advantages + values).astype(np.float32))

    def evaluate(self, batch: SampleBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What a loss is made of, each `[B]` and with its graph: log-probabilities of the batch's actions, entropies, values."""
        logits, values = self.network(torch.tensor(_flat(batch["obs"])))
        all_logp = torch.log_softmax(logits, dim=1)
        indices = torch.tensor(batch["actions"] - self.first_action)
        logp = all_logp.gather(1, indices[:, None]).squeeze(1)
        entropies = -(all_logp.exp() * all_logp).sum(dim=1)
        return logp, entropies, values

    def named_parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """Actor and critic."""
        return self._parameters

    def update_target(self) -> None:  # noqa: B027
        """Nothing: there is no target network."""

    def get_exploration_info(self) -> dict[str, float]:
        """Empty: how much it explores is what it learns."""
        return {}

    def get_weights(self) -> dict[str, Array]:
        """A copy of the weights of actor and critic."""
        return {name: parameter.detach().numpy().copy() for name, parameter in self._parameters.items()}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Take over the weights of actor and critic, copied."""
        if weights.keys() != self._parameters.keys():
            raise ValueError(
                f"weights {sorted(weights)}: this policy has {sorted(self._parameters)}, give those of a policy of the same config"
            )
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if weights[name].shape != tuple(parameter.shape):
                    raise ValueError(f"weights {name!r} of shape {weights[name].shape}: expected {tuple(parameter.shape)}")
                parameter.copy_(torch.tensor(weights[name]))

    def _look_into_network(self) -> None:
        self._parameters = dict(self.network.named_parameters())
        self._policy_layers, self._value_layers = dense_layers(self.network.policy), dense_layers(self.network.value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy's layers have to be views of the copy's network.
        self.__dict__.update(state)
        self._look_into_network()

    def _values(self, rows: Array) -> Array:
        return forward_dense(self._value_layers, rows)[:, 0]


def _flat(obs: Array) -> Array:
    """Observations as the network takes them: `[N, I]`, float32."""
    return obs.reshape(len(obs), -1).astype(np.float32, copy=False)
