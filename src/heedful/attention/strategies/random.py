"""Softmax approximated by positive random features: exp(q·k) ≈ φ(q)·φ(k), then summed like any kernel."""

from __future__ import annotations

from dataclasses import replace

from ..similarity import RandomFeatures
from .base import Strategy
from .factored import Factored
from .scan import Scan


class Random(Strategy):
    name = "random"
    exact = False

    def __init__(self, features: int = 256, seed: int = 0):
        if features < 1:
            raise ValueError(f"Random(features={features}): must be 1 or more.")
        self.features, self.seed = features, seed

    def accepts(self, problem):
        if problem.similarity.kind != "dot":
            return f"{problem.similarity.name} is not an exponential of a dot product"
        if "tensor" in problem.similarity.name:
            return "a scale that is a tensor cannot be drawn for in advance"
        return self._way(problem).accepts(self._as_kernel(problem))

    def cost(self, problem):
        return self._way(problem).cost(self._as_kernel(problem))

    def backward_cost(self, problem):
        return self._way(problem).backward_cost(self._as_kernel(problem))

    def _way(self, problem) -> Strategy:
        return Factored() if problem.neighbors.complete else Scan()

    def _as_kernel(self, problem):
        return problem.replace(similarity=RandomFeatures(self.features).facts(problem.dim))

    def run(self, call):
        scale = call.similarity.resolved(call.query.shape[-1])
        kernel = RandomFeatures(self.features, scale=scale, seed=self.seed)
        way = Factored() if call.facts.complete else Scan()
        return way(replace(call, similarity=kernel))

    def __repr__(self):
        return f"Random(features={self.features})"
