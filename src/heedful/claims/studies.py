"""Results of the lab's studies as claims judge them: what is in the store, or else a quick run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Judged:
    """Means over seeds of a study's variants; `about` says which run they are from."""

    def __init__(self, about: str, means: Mapping[tuple, Mapping[str, float]], axes: tuple[str, ...]):
        self.about, self.means, self.axes = about, means, axes

    def of(self, **fixed: Any) -> Callable[..., Callable[[str], Any]]:
        """`of(dataset="cora")(model="gcn")("test")`: the mean of a metric, None where it was not run."""

        def variant(**rest: Any) -> Callable[[str], Any]:
            wanted = {**fixed, **rest}
            for key, metrics in self.means.items():
                have = dict(zip(self.axes, key, strict=True))
                if all(have[axis] == value for axis, value in wanted.items()):
                    return lambda metric: metrics.get(metric)
            return lambda metric: None

        return variant

    def values(self, axis: str) -> list[Any]:
        """What was tried along an axis, in order."""
        place = self.axes.index(axis)
        return sorted({key[place] for key in self.means})


def judged(name: str, runs: Path, **settings: Any) -> Judged:
    """The best complete run of a study in the store; without one, its quick profile is run and kept there."""
    from .. import lab
    from ..lab.report import newest

    store = lab.Store(runs)
    found = {result.study.name: result for result in newest(store) if result.complete}
    result = found.get(name) or lab.run(name, profile="quick", store=store, settings=settings, backend="loop")
    means = {
        tuple(chosen[axis] for axis in result.study.axes): {
            metric: sum(values) / len(values)
            for metric in {m for trial in result.trials for m in trial.results}
            if (values := list(result.values(key, metric).values()))
        }
        for key, chosen in result.run.variants
    }
    about = f"run {result.run.id}, {result.run.profile} profile, {len(result.run.seeds)} seeds"
    return Judged(about, means, result.study.axes)
