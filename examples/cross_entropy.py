"""The cross-entropy method: no gradients. Actors play with weights drawn around a mean, and the best of them move it.

The shape: a barrier over actors of your own (`from_actors`), whose items are scored candidates; a generation is a batch of them.
Mannor, Rubinstein and Gat, The Cross Entropy Method for Fast Policy Search, 2003. For Box observations and Discrete actions:
`flowrl train examples/cross_entropy.py:execution_plan --env CartPole-v1 --engine ray --stop-return 400`
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from torch import nn

import flowrl as fl
from flowrl.batch import EpisodeStats
from flowrl.metrics import NUM_STEPS_SAMPLED, Log, get_metrics
from flowrl.metrics.names import EPISODES
from flowrl.ops import StandardMetricsReporting


class CrossEntropyConfig(fl.AlgorithmConfig):
    """Settings of the cross-entropy method."""

    num_players: int = 2
    population: int = 16
    num_elites: int = 4

    def make_policy(self, observation_space, action_space, seed):
        return LinearPolicy(observation_space, action_space)


class LinearPolicy(fl.Policy):
    """The action whose linear function of the observation is the highest."""

    def __init__(self, observation_space, action_space):
        self.network = nn.Linear(observation_space.shape[0], int(action_space.n), bias=False)
        nn.init.zeros_(self.network.weight)

    def act(self, obs, explore):
        return (obs @ self.get_weights()["weight"].T).argmax(axis=1), {}

    def loss(self, batch):
        raise NotImplementedError("the cross-entropy method has no loss")


class Player(fl.ParallelIteratorWorker):
    """An actor whose items are candidates: a weight, and the episode that was played with it."""

    def __init__(self, config, index):
        super().__init__(self.play, repeat=False)
        env = gym.make(config.env)
        self.policy, self.index = fl.TrainedPolicy(config, env.observation_space, env.action_space), index
        self.rng = np.random.default_rng([config.seed, index])
        self.aim(self.policy.policy.get_weights()["weight"], 1.0)

    def aim(self, mean, std):
        self.mean, self.std = mean, std

    def play(self):
        while True:
            weight = self.rng.normal(self.mean, self.std)
            self.policy.set_weights({"weight": weight})
            played = self.policy.evaluate(num_episodes=1, seed=int(self.rng.integers(2**31)))
            yield weight, EpisodeStats(played["episode_return_mean"], int(played["episode_len_mean"]), self.index)


@dataclass
class Refit:
    """Mean and spread of a generation's best become those of the next one. For `.for_each()`."""

    workers: fl.WorkerSet
    players: list
    num_elites: int
    sends = "mean, std"

    def __call__(self, generation):
        best = sorted(generation, key=lambda candidate: candidate[1].episode_return)[-self.num_elites :]
        mean, std = (of([weight for weight, _ in best], axis=0) for of in (np.mean, np.std))
        for player in self.players:
            player.aim.remote(mean, std)  # in force before the next round: the gather is a barrier
        self.workers.local_worker().set_weights({"weight": mean})  # what is evaluated and saved
        episodes, metrics = [episode for _, episode in generation], get_metrics()
        metrics.observe(EPISODES, Log(episodes))
        metrics.counters[NUM_STEPS_SAMPLED] += sum(episode.length for episode in episodes)


def execution_plan(workers, config):
    players = [fl.create_colocated(Player, [config, index], 1)[0] for index in range(config.num_players)]
    generations = fl.from_actors(players).gather_sync().batch(config.population)
    return StandardMetricsReporting(generations.for_each(Refit(workers, players, config.num_elites)), workers, config)
