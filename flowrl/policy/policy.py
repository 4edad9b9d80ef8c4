"""The small protocol behind an own loss: what samplers and learners ask of a policy, and nothing else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from flowrl.batch import Array, SampleBatch
from flowrl.errors import ConfigError

__all__ = ["Policy", "checked_policy"]


class Policy(Protocol):
    """Chooses actions, completes fragments, and says what there is to minimise.

    A subclass writes `act` and `loss`, and `postprocess` where a loss needs columns of its own; the rest has defaults for a
    policy whose weights are those of `self.network`, a `torch.nn.Module`. A worker has one policy of its own, made under the config's
    seed, so that all begin with the same weights. Its random choices come from generators that it owns, seeded once; sampling
    gives the same bits whatever the number of threads of the process.
    """

    network: nn.Module
    num_steps_sampled: int = 0
    """Env steps that the run had sampled when this worker last heard of it: what schedules go by."""
    worker_index: int = 0
    """The worker that it acts in: 0 for the local one, 1 to `num_workers` for the remote ones. Set by the worker that made it."""

    @abstractmethod
    def act(self, obs: Array, explore: bool) -> tuple[Array, dict[str, Array]]:
        """Actions `[N]` or `[N, ...]` for observations `[N, ...]`, as the envs take them, and columns to store (`[N, ...]` each).

        A column "actions" is stored in place of what the envs got: where a log-probability belongs to the action before it was
        brought into its bounds, say. `obs` is overwritten by the next step: copy what you keep.
        """

    @abstractmethod
    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, Any]]:
        """The scalar to minimise, with its graph: a mean over the rows of `batch`; and statistics.

        A statistic is such a mean too, or one value a row (`td_errors` `[B]`, which replay is told of). Random numbers of a loss's own
        come from torch's generator: with `devices`, copies of the policy are asked, and gone after the batch.
        """

    def backward(self, batch: SampleBatch) -> Mapping[str, Any]:
        """Leave the gradient of `loss` over `batch` in the `grad` of the parameters, all None before; the statistics as `loss` gives them.

        By autograd. For a policy that knows a faster way to the same gradient: what is learned is `loss` all the same.
        """
        loss, stats = _checked(self, self.loss(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        return stats

    def postprocess(self, fragment: SampleBatch) -> SampleBatch:
        """The fragment with the columns that need all of it (advantages, say). Rows of an env are in order and belong together."""
        return fragment

    def update_target(self) -> None:
        """Copy what is trained to the target network; nothing without one."""
        return

    def get_exploration_info(self) -> dict[str, float]:
        """What a report shows about exploration; empty where there is nothing to show."""
        return {}

    def make_optimizer(self, lr: float) -> torch.optim.Optimizer:
        """What trains it: Adam with epsilon 1e-5, as RL has it since the first A2C and PPO code, over all `named_parameters`.

        Fused: a fifth less time an update where the networks are small. An `lr_schedule` sets the rate of every group.
        """
        return torch.optim.Adam(self.named_parameters().values(), lr=lr, eps=1e-5, fused=True)

    def named_parameters(self) -> Mapping[str, nn.Parameter]:
        """What an optimizer trains, changed in place by it."""
        return dict(self.network.named_parameters())

    def moments_of(self, batch: SampleBatch) -> dict[str, Any]:
        """Values that merge (`Moments`, say) of a train batch, for what runs along: they travel with gradients, and come to `learned`."""
        return {}

    def learned(self, info: Mapping[str, Any]) -> None:
        """The weights were just changed by a batch; `info` has the merged statistics and moments. What adapts moves here."""
        return

    def is_enough(self, stats: Mapping[str, float]) -> bool:
        """Whether to leave a batch, before the update that these statistics of a minibatch belong to."""
        return False

    def get_weights(self) -> dict[str, Array]:
        """A copy of all that has to be the same in every worker, by name."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self._named_tensors()}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Take over what `get_weights` gives, copied."""
        own = dict(self._named_tensors())
        check_names(weights, own)
        for name, tensor in own.items():
            check_shape(name, weights[name], tuple(tensor.shape))
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(torch.tensor(weights[name]))

    def _named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.named_parameters().items()
        yield from self.network.named_buffers()


def checked_policy(policy: Any) -> Policy:
    """What a config's `make_policy` gave, if it has all that is asked of a policy."""
    missing = [name for name in vars(Policy) if not name.startswith("_") and callable(getattr(Policy, name)) and not hasattr(policy, name)]
    if missing:
        raise ConfigError(
            f"make_policy gave {type(policy).__name__}, which has no {', '.join(missing)}: make it a subclass of flowrl.Policy, "
            "which needs act and loss and has defaults for the rest"
        )
    checked: Policy = policy
    try:
        checked.named_parameters()
    except AttributeError as error:
        raise ConfigError(
            f"{type(policy).__name__}: {error}. Set self.network, a torch.nn.Module, in its __init__, or define named_parameters, "
            "get_weights and set_weights"
        ) from error
    return checked


def check_names(weights: Mapping[str, Array], own: Mapping[str, Any]) -> None:
    """Refuse weights of another kind of policy."""
    if weights.keys() != own.keys():
        raise ValueError(f"weights {sorted(weights)}: this policy has {sorted(own)}, give those of a policy of the same config")


def check_shape(name: str, weight: Array, shape: tuple[int, ...]) -> None:
    """Refuse weights of another size."""
    if np.shape(weight) != shape:
        raise ValueError(f"weights {name!r} of shape {np.shape(weight)}: expected {shape}")


def _checked(policy: Policy, answer: Any) -> tuple[torch.Tensor, Mapping[str, Any]]:
    """What `loss` gave, if it is what is asked of it."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], torch.Tensor) and isinstance(answer[1], Mapping):
        loss, stats = answer
        if not loss.ndim and loss.requires_grad:
            return loss, stats
        answer = f"a tensor of shape {list(loss.shape)}{'' if loss.requires_grad else ' without a graph'}"
    gave = answer if isinstance(answer, str) else f"{type(answer).__name__}"
    raise TypeError(
        f"{type(policy).__name__}.loss gave {gave}: expected (a scalar tensor with its graph, {{name: number, or one value a row}})"
    )
