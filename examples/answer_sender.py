"""PPO without a barrier: each fragment is trained on as it comes, and new weights go to its sender alone.

The shape: one asynchronous stream that still knows which worker an item is from. Nobody waits for the slowest worker; in return a
fragment is a few updates old when it is trained on (`info["updates_behind"]`), which PPO's ratio allows for.
`flowrl train examples/answer_sender.py:execution_plan --env CartPole-v1 --stop-return 400`
"""

from dataclasses import dataclass

import flowrl as fl
from flowrl.metrics import Mean, get_metrics
from flowrl.ops import ParallelRollouts, StandardizeFields, StandardMetricsReporting


class AnswerSenderConfig(fl.PPOConfig):
    """PPO's settings; a fragment is a train batch."""

    num_workers: int = 2
    num_envs: int = 4
    rollout_fragment_length: int = 128
    lr: float = 1e-3
    gamma: float = 0.98


@dataclass
class TrainAndAnswer:
    """Trains on a fragment, then sends its worker the weights; those that it samples the next one with. For `.for_each()`."""

    workers: fl.WorkerSet
    config: AnswerSenderConfig
    sends = "weights"

    def __call__(self, pair):
        worker, fragment = pair
        local, metrics = self.workers.local_worker(), get_metrics()
        metrics.observe("updates_behind", Mean.of(local.policy_version - int(fragment["policy_version"][0])))
        stats = local.learn_on_batch(fragment, self.config.num_sgd_iter, self.config.sgd_minibatch_size)
        worker.set_weights.remote(local.get_weights(), local.policy_version)
        metrics.counters["num_steps_trained"] += fragment.count
        metrics.counters["num_weight_syncs"] += 1
        metrics.info["learner"] = {name: mean.value for name, mean in stats.items()}


def execution_plan(workers, config):
    fragments = ParallelRollouts(workers, mode="async").for_each(StandardizeFields(["advantages"]))
    train = fragments.zip_with_source_actor().for_each(TrainAndAnswer(workers, config))
    return StandardMetricsReporting(train, workers, config)
