import math
import re

import numpy as np
import pytest
import torch

from flowrl.batch import SampleBatch
from flowrl.learner import apply_gradients, compute_gradients, explained_variance, learn_on_batch
from flowrl.metrics import Mean
from flowrl.policy import Policy


class Line(Policy):
    """Fits y = w * x by half the squared error; every row counts alike."""

    def __init__(self, w: float = 0.0) -> None:
        self.w = torch.nn.Parameter(torch.tensor([w]))
        self.unused = torch.nn.Parameter(torch.zeros(2))
        self.seen: list[list[float]] = []

    def act(self, obs, explore):
        raise NotImplementedError

    def loss(self, batch):
        x, y = torch.tensor(batch["x"]), torch.tensor(batch["y"])
        self.seen.append(batch["x"].tolist())
        error = (self.w * x - y).square().mean()
        return error / 2, {"error": error.item()}

    def named_parameters(self):
        return {"w": self.w, "unused": self.unused}


def line_batch(xs, slope: float = 2.0, **more) -> SampleBatch:
    x = np.array(xs, np.float32)
    return SampleBatch({"x": x, "y": slope * x, **more})


def plain_sgd(policy: Line, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([policy.w, policy.unused], lr=lr)


def learn(policy: Line, batch: SampleBatch, lr: float = 0.0, seed: int = 0, **settings) -> dict[str, Mean]:
    return learn_on_batch(policy, plain_sgd(policy, lr), batch, np.random.default_rng(seed), **settings)


def test_one_step_follows_the_gradient():
    policy = Line(0.0)
    learn(policy, line_batch([1.0]), lr=0.5)  # d/dw (w - 2)^2 / 2 at 0 is -2
    assert policy.w.item() == 1.0


def test_every_epoch_sees_every_row_once_in_an_order_of_its_own():
    policy = Line()
    learn(policy, line_batch(range(10)), num_sgd_iter=2, sgd_minibatch_size=4)
    assert [len(rows) for rows in policy.seen] == [4, 4, 2] * 2
    first, second = np.concatenate(policy.seen[:3]).tolist(), np.concatenate(policy.seen[3:]).tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_the_same_generator_gives_the_same_minibatches():
    policies = [Line(), Line()]
    for policy in policies:
        learn(policy, line_batch(range(10)), sgd_minibatch_size=3)
    assert policies[0].seen == policies[1].seen


def test_statistics_are_means_over_rows_not_over_minibatches():
    stats = learn(Line(0.0), line_batch([0.0, 0.0, 0.0, 1.0, 1.0]), sgd_minibatch_size=4)
    assert stats["error"].value == pytest.approx(4.0 * 2 / 5)
    assert stats["error"].count == 5


def test_the_gradient_norm_is_that_before_clipping_and_the_step_is_clipped():
    policy = Line(0.0)
    stats = learn(policy, line_batch([1.0]), lr=1.0, grad_clip=0.5)
    assert stats["grad_norm"].value == 2.0
    assert policy.w.item() == pytest.approx(0.5)


def test_explained_variance_is_that_of_the_batch_before_the_update():
    batch = line_batch([1.0, 2.0, 3.0], vf_preds=np.array([0.0, 1.0, 4.0]), value_targets=np.array([0.0, 2.0, 4.0]))
    assert learn(Line(), batch, num_sgd_iter=3)["explained_variance"].value == pytest.approx(1 - (2 / 9) / (8 / 3))
    assert "explained_variance" not in learn(Line(), line_batch([1.0]))


@pytest.mark.parametrize(
    ("predictions", "explained"), [([0.0, 2.0], 1.0), ([1.0, 1.0], 0.0), ([2.0, 0.0], -3.0)], ids=["all", "as a constant", "worse"]
)
def test_explained_variance(predictions, explained):
    assert explained_variance(np.array(predictions), np.array([0.0, 2.0])) == explained


def test_targets_that_do_not_vary_leave_nothing_to_explain():
    assert explained_variance(np.array([1.0]), np.array([3.0])) == 0.0


def test_a_batch_without_rows_is_refused():
    with pytest.raises(ValueError, match="without rows"):
        learn(Line(), line_batch([]))


def test_gradients_travel_as_arrays_and_leave_the_policy_as_it_is():
    policy = Line(0.0)
    gradients, stats = compute_gradients(policy, line_batch([1.0, 1.0]))
    assert {name: (type(g), g.tolist()) for name, g in gradients.items()} == {"w": (np.ndarray, [-2.0]), "unused": (np.ndarray, [0.0, 0.0])}
    assert policy.w.item() == 0.0
    assert stats["error"] == Mean(8.0, 2)


def test_gradients_are_not_those_of_the_next_batch_too():
    policy = Line(0.0)
    first, _ = compute_gradients(policy, line_batch([1.0]))
    second, _ = compute_gradients(policy, line_batch([1.0], slope=4.0))
    assert (first["w"].tolist(), second["w"].tolist()) == ([-2.0], [-4.0])


def test_applying_computed_gradients_is_learning_on_the_batch():
    apart, together = Line(0.0), Line(0.0)
    batch = line_batch([1.0, 3.0])
    gradients, _ = compute_gradients(apart, batch)
    applied = apply_gradients(apart, plain_sgd(apart, 0.1), gradients, grad_clip=1.0)
    learned = learn(together, batch, lr=0.1, grad_clip=1.0)
    assert apart.w.item() == together.w.item() != 0.0
    assert applied["grad_norm"] == learned["grad_norm"]


def test_computing_gradients_leaves_the_number_of_threads_as_it_was():
    before = torch.get_num_threads()
    compute_gradients(Line(), line_batch([1.0]))
    assert torch.get_num_threads() == before


def test_gradients_of_another_policy_are_refused():
    policy = Line()
    with pytest.raises(ValueError, match=r"gradients of \['v'\]: this policy trains \['unused', 'w'\]"):
        apply_gradients(policy, plain_sgd(policy, 0.1), {"v": np.zeros(1)})


def test_the_optimizer_is_adam_with_the_epsilon_of_the_field():
    policy = Line(0.0)
    learn_on_batch(policy, policy.make_optimizer(lr=0.25), line_batch([1.0]), np.random.default_rng(0))
    # Adam's first step is lr * g / (|g| + eps) whatever the gradient
    assert policy.w.item() == pytest.approx(0.25, rel=1e-4)
    assert math.isfinite(policy.unused.sum().item())


class Gives(Line):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def loss(self, batch):
        return self.answer(self.w.sum())


@pytest.mark.parametrize(
    ("answer", "gave"),
    [
        (lambda w: w, "Tensor"),
        (lambda w: (1.0, {}), "tuple"),
        (lambda w: (w.expand(3), {}), r"a tensor of shape \[3\]"),
        (lambda w: (w.detach(), {}), r"a tensor of shape \[\] without a graph"),
        (lambda w: (w, 3), "tuple"),
        (lambda w: None, "NoneType"),
    ],
)
def test_a_loss_that_gives_something_else_is_told_what_is_expected(answer, gave):
    with pytest.raises(TypeError, match=rf"Gives\.loss gave {gave}: expected \(a scalar tensor with its graph"):
        learn(Gives(answer), line_batch([1.0]))


def test_statistics_may_be_tensors():
    assert learn(Gives(lambda w: (w, {"w": w + 3})), line_batch([1.0]))["w"].value == 3.0


class Rows(Line):
    """Says of each row its number, and how many losses were asked for before; leaves the batch at the one of that number."""

    def __init__(self, enough: int = -1) -> None:
        super().__init__()
        self.enough, self.told = enough, []

    def loss(self, batch):
        loss, stats = super().loss(batch)
        return loss, stats | {"row": torch.tensor(batch["x"], dtype=torch.float64), "when": np.full(batch.count, len(self.seen) - 1)}

    def is_enough(self, stats):
        self.told.append(sorted(stats))
        return len(self.seen) - 1 == self.enough

    def learned(self, info):
        self.told.append(sorted(info))


def test_values_of_rows_come_back_in_the_order_of_the_batch():
    stats = learn(Rows(), line_batch(range(10)), num_sgd_iter=2, sgd_minibatch_size=4)
    assert stats["row"].tolist() == list(range(10))
    assert (stats["row"].dtype, stats["row"].shape) == (np.float32, (10,))
    assert learn(Rows(), line_batch(range(3)))["row"].tolist() == [0, 1, 2]


def test_values_of_rows_are_those_of_the_last_epoch():
    policy = Rows()
    when = learn(policy, line_batch(range(5)), num_sgd_iter=3, sgd_minibatch_size=2)["when"]
    for loss, rows in list(enumerate(policy.seen))[-3:]:
        assert when[np.array(rows, int)].tolist() == [loss] * len(rows)


@pytest.mark.parametrize(("enough", "num_unreached"), [(1, 2), (4, 0)], ids=["in the first epoch", "in the second"])
def test_where_a_batch_is_left_the_other_rows_have_their_older_values_or_nan(enough, num_unreached):
    policy = Rows(enough)
    when = learn(policy, line_batch(range(6)), num_sgd_iter=2, sgd_minibatch_size=2)["when"]
    expected = np.full(6, math.nan)
    for loss, rows in enumerate(policy.seen):
        expected[np.array(rows, int)] = loss
    np.testing.assert_array_equal(when, expected)
    assert (len(policy.seen), np.isnan(when).sum()) == (enough + 1, num_unreached)


def test_values_of_rows_are_not_means_and_do_not_merge():
    policy = Rows()
    learn(policy, line_batch(range(4)))
    assert policy.told == [["error"], ["error", "grad_norm"]]
    _, info = compute_gradients(Rows(), line_batch(range(4)))
    assert info.keys() == {"error"}


def test_values_of_rows_are_a_copy():
    kept = np.zeros(2, np.float32)
    stats = learn(Gives(lambda w: (w, {"td_errors": torch.from_numpy(kept), "more": kept})), line_batch([1.0, 2.0]))
    kept[:] = 7.0
    assert (stats["td_errors"].tolist(), stats["more"].tolist()) == ([0.0, 0.0], [0.0, 0.0])


@pytest.mark.parametrize("make", [torch.zeros, np.zeros], ids=["tensor", "array"])
@pytest.mark.parametrize("shape", [(2,), (3, 1), (1,), (1, 3)], ids=str)
def test_a_statistic_of_another_shape_is_refused(make, shape):
    mine = Gives(lambda w: (w, {"td_errors": make(shape)}))
    expected = rf"Gives\.loss gave the statistic 'td_errors' in shape {re.escape(str(list(shape)))}: expected .* in shape \[3\]"
    with pytest.raises(TypeError, match=expected):
        learn(mine, line_batch([1.0, 2.0, 3.0]), lr=1.0)
    assert mine.w.item() == 0.0


def test_a_statistic_that_is_squeezed_away_where_one_row_is_left_is_refused():
    class Squeezes(Line):
        def loss(self, batch):
            loss, _ = super().loss(batch)
            return loss, {"td_errors": torch.tensor(batch["x"])[:, None].squeeze()}

    with pytest.raises(TypeError, match=r"Squeezes\.loss gave td_errors with one value a row for some minibatches and as a number"):
        learn(Squeezes(), line_batch(range(5)), sgd_minibatch_size=2)


@pytest.mark.parametrize("size", [0, 1, 3, 7, 9])
def test_minibatches_are_those_of_the_batch_by_the_same_random_numbers(size):
    policy, batch = Line(), line_batch(range(7))
    learn(policy, batch, num_sgd_iter=2, sgd_minibatch_size=size, seed=3)
    rng = np.random.default_rng(3)
    assert policy.seen == [part["x"].tolist() for _ in range(2) for part in batch.minibatches(size, rng)]


def test_a_negative_minibatch_size_is_refused():
    with pytest.raises(ValueError, match="minibatch size -1"):
        learn(Line(), line_batch(range(3)), sgd_minibatch_size=-1)


@pytest.mark.parametrize("grad_clip", [None, 1e-3, 0.5, 1e3], ids=str)
def test_norm_and_clipping_are_those_of_torch(grad_clip):
    torch.manual_seed(0)
    gradients = [torch.randn(7, 5), torch.randn(7), torch.randn(3, 7)]
    parameters = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]

    class Slopes(Line):
        def loss(self, batch):
            return sum((gradient * parameter).sum() for gradient, parameter in zip(gradients, parameters)), {}

        def named_parameters(self):
            return {str(at): parameter for at, parameter in enumerate(parameters)}

    stats = learn_on_batch(Slopes(), torch.optim.SGD(parameters, lr=1.0), line_batch([1.0]), np.random.default_rng(0), grad_clip=grad_clip)
    peers = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for peer, gradient in zip(peers, gradients):
        peer.grad = gradient.clone()
    assert stats["grad_norm"].value == torch.nn.utils.clip_grad_norm_(peers, math.inf if grad_clip is None else grad_clip).item()
    assert all(torch.equal(-parameter, peer.grad) for parameter, peer in zip(parameters, peers))


def test_what_an_optimizer_remembers_of_a_gradient_ends_at_zero_and_not_at_the_slow_numbers_next_to_it():
    policy = Line()
    optimizer = torch.optim.Adam(policy.named_parameters().values(), fused=True)
    remembered = []
    for step in range(900):  # a gradient of 1, and then none at all
        apply_gradients(policy, optimizer, {"w": np.float32([step == 0]), "unused": np.zeros(2, np.float32)})
        remembered.append(optimizer.state[policy.w]["exp_avg"].item())
    # 0.1 * 0.9^n is below 1.2e-38, the smallest float32 of full precision, from n = 808 on
    assert remembered[807] > 1.1e-38 and remembered[808:] == [0.0] * 92


@pytest.mark.parametrize("flushed", [False, True])
def test_a_processors_setting_for_the_smallest_numbers_is_left_as_it_was(flushed):
    policy = Line()
    torch.set_flush_denormal(flushed)
    try:
        learn_on_batch(policy, plain_sgd(policy, 0.1), line_batch([1, 2]), np.random.default_rng(0))
        assert (torch.tensor(1e-38) / 4 == 0).item() is flushed
    finally:
        torch.set_flush_denormal(False)
