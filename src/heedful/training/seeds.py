"""Many seeds of one experiment, one after another, stacked or in processes: the same numbers from all
three.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import randomness
from .choice import Choice, choose, width_for
from .experiment import Experiment, Outcome
from .progress import Bar
from .stack import Unstackable
from .stacked import run_stacked
from .workers import run_processes

BACKENDS = ("auto", "loop", "stacked", "processes")


class Outcomes(list[Outcome]):
    """What came of each seed, in the order they were asked for, and how they were trained (`choice`)."""

    choice: Choice

    def column(self, name: str) -> list[float]:
        """A number of every seed: of its test, or of its last evaluation."""
        found = [{**outcome.history.last, **outcome.test}.get(name) for outcome in self]
        if None in found:
            names = dict.fromkeys(key for outcome in self for key in (*outcome.history.last, *outcome.test))
            raise KeyError(f"Outcomes: not every seed has {name!r}; there are {', '.join(names)}.")
        return found  # type: ignore[return-value]

    def frame(self):
        """A row a seed, as a pandas DataFrame; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise ImportError("Outcomes.frame() needs pandas: pip install pandas.") from None
        return pandas.DataFrame([{"seed": o.seed, **o.history.last, **o.test} for o in self])

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))


def train_seeds(
    experiment: Experiment,
    seeds: int | Iterable[int],
    *,
    backend: str = "auto",
    workers: int | None = None,
    width: int | None = None,
    checkpoint: str | os.PathLike | None = None,
    done: Callable[[Outcome], object] | None = None,
    store: Callable[[int], Any] | None = None,
    progress: bool = True,
) -> Outcomes:
    """Train an experiment for many seeds.

    Args:
        experiment: what to train.
        seeds: how many, from 0; or which.
        backend: "loop" trains one after another; "stacked" all at once as a stack of models under vmap;
            "processes" in workers, every core busy; "auto" times a few steps of each and takes the fastest.
        workers: how many processes; a core each unless given.
        width: how many seeds in a stack; up to 32 unless given, fewer of large models. In processes, 1
            unless given or found faster.
        checkpoint: a folder for the checkpoints of the loop, one folder a seed in it.
        done: called with every `Outcome` as it is there.
        store: `store(seed)` gives something with `log(step, **numbers)`.
        progress: whether to show a progress bar, on a terminal.

    Every seed ends with the same numbers whatever the backend: to the bit between loop and processes given
    the same number of threads, and to rounding when stacked, where sums may go in another order.

    >>> import torch
    >>> experiment = Experiment(
    ...     model=lambda: torch.nn.Linear(2, 1),
    ...     loss=lambda model, x: model(x).square().mean(),
    ...     batches=[torch.ones(4, 2)],
    ...     optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    ...     epochs=2,
    ... )
    >>> one, two = train_seeds(experiment, 2, backend="stacked"), train_seeds(experiment, 2, backend="loop")
    >>> [round(a - b, 6) for a, b in zip(one.column("loss"), two.column("loss"), strict=True)]
    [0.0, 0.0]
    """
    chosen = list(range(seeds)) if isinstance(seeds, int) else [int(seed) for seed in seeds]
    if not chosen:
        raise ValueError(f"train_seeds: seeds is {seeds!r}; it takes at least one.")
    if len(set(chosen)) < len(chosen):
        raise ValueError("train_seeds: a seed is given twice; it would give the same outcome twice.")
    if backend not in BACKENDS:
        raise ValueError(f"train_seeds: backend is {backend!r}; it takes {', '.join(BACKENDS)}.")
    for name, value in (("workers", workers), ("width", width)):
        if value is not None and value < 1:
            raise ValueError(f"train_seeds: {name} is {value}; it takes at least 1.")
    if checkpoint is not None and backend not in ("auto", "loop"):
        raise ValueError(f"train_seeds: checkpoint goes with the loop, not with backend={backend!r}.")
    workers = workers or _cores()
    generators = randomness.capture()
    try:
        return _trained(experiment, chosen, backend, workers, width, checkpoint, done, store, progress)
    finally:
        randomness.restore(generators)


def _trained(experiment, seeds, backend, workers, width, checkpoint, done, store, progress) -> Outcomes:
    if checkpoint is not None:
        choice = Choice("loop", reasons={"stacked": "a checkpoint was asked for"})
    elif backend == "auto":
        choice = choose(experiment, seeds, workers)
        if choice.width > 1:
            choice.width = width or choice.width
    else:
        choice = Choice(
            backend, width or (width_for(experiment.build(seeds[0])) if backend == "stacked" else 1)
        )

    there: dict[int, Outcome] = {}

    def tell(outcome: Outcome) -> None:
        there[outcome.seed] = outcome
        bar.update(len(there), repr(outcome))
        if done is not None:
            done(outcome)

    def one_by_one(seeds: list[int]) -> None:
        for seed in seeds:
            if seed not in there:
                tell(_one(experiment, seed, checkpoint, store))

    with Bar(progress, len(seeds), f"{len(seeds)} seeds, {choice.backend}", alive=True) as bar:
        if choice.backend == "processes":
            run_processes(experiment, seeds, workers=workers, width=choice.width, done=tell, store=store)
        elif choice.backend == "stacked":
            for start in range(0, len(seeds), choice.width):
                group = seeds[start : start + choice.width]
                try:
                    run_stacked(experiment, group, done=tell, store=store)
                except Unstackable as error:  # which may show late: a later batch of another shape
                    if backend != "auto":
                        raise
                    choice.reasons["stacked"] = str(error)
                    one_by_one(group)
        else:
            one_by_one(seeds)
    outcomes = Outcomes(there[seed] for seed in seeds)
    outcomes.choice = choice
    return outcomes


def _one(experiment: Experiment, seed: int, checkpoint: Any, store) -> Outcome:
    try:
        return experiment.run(
            seed,
            checkpoint=None if checkpoint is None else Path(checkpoint) / f"seed-{seed}",
            store=None if store is None else store(seed),
        )
    except Exception as error:
        error.add_note(f"This was seed {seed}.")
        raise


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
