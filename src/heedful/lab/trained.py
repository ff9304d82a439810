"""A study whose every variant is one `Experiment`, so that the lab can train its seeds one by one or stacked.

@study("cora", "How well does a GCN classify papers?", source="Kipf & Welling, ICLR 2017")
@dataclass
class Cora(Trained):
    epochs: int = 200

    metrics = {"test": "accuracy on the test nodes, %"}

    def experiment(self, device, seed): ...    # an Experiment: model, loss, batches, optimizer
    def found(self, outcome): ...              # {"test": 81.5} from what came of it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from ..training import Experiment, Outcome, train_seeds

if TYPE_CHECKING:
    from .desk import Desk


class Trained:
    """Gives a study `run` and `run_many`; it says `experiment(device, seed)` and `found(outcome)`."""

    @property
    def alike(self) -> bool:
        """Whether the seeds have one experiment between them, and so can be stacked."""
        return True

    def experiment(self, device: torch.device, seed: int) -> Experiment:
        raise NotImplementedError(f"{type(self).__name__} says no experiment(device, seed).")

    def found(self, outcome: Outcome) -> dict[str, float]:
        """The study's numbers; the test's, unless a study says otherwise."""
        return outcome.test

    def keep(self, outcome: Outcome, lab: Desk) -> None:
        """Keep what is to be found again, such as the model (`lab.keep`); nothing unless a study says so."""

    def run(self, seed: int, lab: Desk) -> dict[str, float]:
        outcome = self.experiment(lab.device, seed).run(seed, store=lab)
        self.keep(outcome, lab)
        return self.found(outcome)

    def run_many(
        self,
        seeds: Sequence[int],
        desks: Sequence[Desk],
        done: Callable[[int, dict[str, float], float], object] | None = None,
    ) -> list[dict[str, float]]:
        """All seeds at once; `done(seed, numbers, seconds)` hears of each as it stops."""
        places = dict(zip(seeds, desks, strict=True))

        def tell(outcome: Outcome) -> None:
            self.keep(outcome, places[outcome.seed])
            if done is not None:
                done(outcome.seed, self.found(outcome), outcome.history.seconds)

        outcomes = train_seeds(
            self.experiment(desks[0].device, seeds[0]),
            seeds,
            backend="stacked",
            store=places.__getitem__,
            progress=False,
            done=tell,
        )
        return [self.found(outcome) for outcome in outcomes]
