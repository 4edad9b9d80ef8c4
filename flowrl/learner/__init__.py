"""Learning: what turns batches and gradients into new weights."""

from flowrl.learner.devices import checked_devices
from flowrl.learner.sgd import Gradients, apply_gradients, compute_gradients, explained_variance, learn_on_batch

__all__ = ["Gradients", "apply_gradients", "checked_devices", "compute_gradients", "explained_variance", "learn_on_batch"]
