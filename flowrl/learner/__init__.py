"""Learning: what turns batches and gradients into new weights."""

from flowrl.learner.sgd import Gradients, apply_gradients, compute_gradients, explained_variance, learn_on_batch

__all__ = ["Gradients", "apply_gradients", "compute_gradients", "explained_variance", "learn_on_batch"]
