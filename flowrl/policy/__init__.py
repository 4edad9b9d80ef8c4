"""Policies: how to act, what to learn from, and what to minimise. The losses themselves are with their algorithms."""

from flowrl.policy.actor_critic import ActorCriticPolicy
from flowrl.policy.distributions import Bernoulli, Categorical, Gaussian, Joint, MultiCategorical, distribution_for
from flowrl.policy.encoding import Encoder, OneHot
from flowrl.policy.gae import gae
from flowrl.policy.networks import ActorCritic, ImageEncoder, QNetwork
from flowrl.policy.normalizer import Moments, Normalizer
from flowrl.policy.policy import Policy
from flowrl.policy.q_policy import QPolicy

__all__ = [
    "ActorCritic",
    "ActorCriticPolicy",
    "Bernoulli",
    "Categorical",
    "Encoder",
    "Gaussian",
    "ImageEncoder",
    "Joint",
    "Moments",
    "MultiCategorical",
    "Normalizer",
    "OneHot",
    "Policy",
    "QNetwork",
    "QPolicy",
    "distribution_for",
    "gae",
]
