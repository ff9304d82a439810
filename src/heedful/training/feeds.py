"""The batches of many seeds, step by step, as one batch with a dimension of seeds; or one that all share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from . import randomness
from .batches import Order
from .experiment import Experiment
from .feed import Feed
from .stack import Unstackable
from .streams import Streams


class Joined(NamedTuple):
    """A batch for all seeds: where `dims` says 0, its parts are stacked; elsewhere all seeds share them."""

    batch: Any
    dims: Any
    counts: list[float]  # samples of each seed


class Feeds:
    """One feed where the order of the batches is the same for all seeds, else one for each.

    What draws its order from the global generators (a DataLoader) is asked with those of its seed.
    """

    def __init__(
        self, experiment: Experiment, seeds: list[int], streams: Streams, generators: list[dict[str, Any]]
    ):
        self.experiment, self.streams, self.generators = experiment, streams, generators
        self.seeds = list(seeds)
        given = experiment.batches
        self.shared = isinstance(given, (list, tuple, Order))
        sources = [experiment.data(seed) for seed in (seeds[:1] if self.shared else seeds)]
        if not callable(given) and iter(sources[0]) is sources[0]:
            raise Unstackable("batches can be gone through only once; pass a list, a DataLoader or Batches.")
        self.draws = not isinstance(sources[0], (list, tuple, Order))
        self.feeds = [Feed(source, experiment.accumulate) for source in sources]

    def steps(self) -> Iterator[list[Joined]]:
        """An epoch, a step at a time."""
        self.under_way = [feed.steps() for feed in self.feeds]
        while True:
            windows = []
            for place, rest in enumerate(self.under_way):
                with self._alone(place):
                    windows.append(next(rest, None))
            ended = [window is None for window in windows]
            if all(ended):
                return
            if any(ended) or len({len(window) for window in windows}) > 1:  # type: ignore[arg-type]
                raise Unstackable("the seeds have epochs of different lengths.")
            yield [self._joined(batches) for batches in zip(*windows, strict=True)]  # type: ignore[arg-type]

    def keep(self, which: list[int]) -> None:
        """Go on with these seeds only."""
        self.seeds = [self.seeds[place] for place in which]
        self.generators = [self.generators[place] for place in which]
        if not self.shared:
            self.feeds = [self.feeds[place] for place in which]
            self.under_way = [self.under_way[place] for place in which]

    def _joined(self, batches: tuple) -> Joined:
        samples = self.experiment.samples
        if self.shared:
            return Joined(batches[0], None, [samples(batches[0])] * len(self.seeds))
        counts = [samples(batch) for batch in batches]
        flat, forms = zip(*map(tree_flatten, batches), strict=True)
        if any(form != forms[0] for form in forms):
            raise Unstackable("the batches of two seeds are made of different parts.")
        parts, dims = zip(*map(_stacked, zip(*flat, strict=True)), strict=True)
        return Joined(tree_unflatten(list(parts), forms[0]), tree_unflatten(list(dims), forms[0]), counts)

    @contextmanager
    def _alone(self, place: int) -> Iterator[None]:
        """The global generators as this seed has them."""
        if not self.draws:
            yield
            return
        before = randomness.capture()
        own = {**self.generators[place], "torch": self.streams.cpu[place].get_state()}
        randomness.restore(own)
        try:
            yield
        finally:
            self.generators[place] = randomness.capture()
            self.streams.cpu[place].set_state(self.generators[place]["torch"])
            randomness.restore(before)


def _stacked(parts: tuple) -> tuple[Any, int | None]:
    """(the parts of all seeds stacked, 0), or (the one they share, None)"""
    first = parts[0]
    if all(part is first for part in parts):
        return first, None
    if all(isinstance(part, Tensor) for part in parts):
        if any(part.shape != first.shape for part in parts):
            raise Unstackable(
                f"the batches of two seeds differ in shape: {[tuple(p.shape) for p in parts][:4]}."
            )
        return torch.stack(parts), 0
    if any(type(part) is not type(first) or part != first for part in parts):
        raise Unstackable(f"the batches hold a {type(first).__name__} that differs from seed to seed.")
    return first, None
