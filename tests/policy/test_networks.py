import hashlib

import numpy as np
import pytest
import torch

from flowrl.policy.dense import dense_layers, forward_dense
from flowrl.policy.networks import ActorCritic, seeded
from tests.policy.threads import with_other_threads


@pytest.mark.parametrize("num_inputs", [1, 4, 256, 257, 600])
@pytest.mark.parametrize("hiddens", [(), (8,), (300, 20)])
def test_acting_and_learning_see_the_same_network(num_inputs, hiddens):
    torch.manual_seed(0)
    network = ActorCritic(num_inputs, 3, hiddens)
    obs = np.random.default_rng(0).standard_normal((5, num_inputs)).astype(np.float32)
    logits, values = network(torch.tensor(obs))
    assert np.allclose(forward_dense(dense_layers(network.policy), obs), logits.detach(), atol=1e-6)
    assert np.allclose(forward_dense(dense_layers(network.value), obs)[:, 0], values.detach(), atol=1e-5)


def test_layers_follow_changes_in_place():
    network = ActorCritic(2, 2, (4,))
    layers = dense_layers(network.value)
    with torch.no_grad():
        network.value[-1].bias.fill_(7.0)
    assert layers[-1][1].tolist() == [7.0]


def test_the_first_weights_are_orthogonal_with_the_usual_gains():
    network = ActorCritic(4, 3, (64, 64))
    gains = [
        torch.linalg.matrix_norm(layer.weight, 2).item()
        for mlp in (network.policy, network.value)
        for layer in mlp
        if hasattr(layer, "weight")
    ]
    assert gains == pytest.approx([2**0.5, 2**0.5, 0.01, 2**0.5, 2**0.5, 1.0])
    assert all(layer.bias.abs().max() == 0 for layer in network.policy if hasattr(layer, "bias"))


def digest() -> str:
    """Of first weights and of outputs, for small and large layers and few and many rows."""
    rng = np.random.default_rng(0)
    sha = hashlib.sha256()
    for num_inputs, hiddens in ((4, (64, 64)), (144, (64, 64)), (600, (300, 300)), (1000, (512,))):
        network = seeded(0, lambda ni=num_inputs, h=hiddens: ActorCritic(ni, 3, h))
        for rows in (1, 8, 64, 500):
            obs = rng.standard_normal((rows, num_inputs)).astype(np.float32)
            for mlp in (network.policy, network.value):
                sha.update(forward_dense(dense_layers(mlp), obs).tobytes())
    return sha.hexdigest()


def test_first_weights_and_acting_give_the_same_bits_with_one_thread_and_with_two():
    assert digest() == with_other_threads("from tests.policy.test_networks import digest; print(digest())")
