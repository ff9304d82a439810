"""Two runs side by side: variants that both have, paired by seed."""

from __future__ import annotations

from typing import Any

from .result import Result
from .statistics import holm, paired
from .store import Store
from .study import find


def compare(store: Store, first: str, second: str, metric: str | None = None) -> list[dict[str, Any]]:
    """second − first for each variant of both, or for their only variants if the settings differ.

    p is corrected for the number of lines (Holm).
    """
    one, two = (Result(find(run.study), run, store) for run in (store.run(first), store.run(second)))
    if one.study.name != two.study.name:
        raise ValueError(
            f"{one.run.id} is of {one.study.name}, {two.run.id} of {two.study.name}: nothing to pair."
        )
    metrics = one.study.metrics
    if metric is not None and metric not in metrics:
        raise ValueError(f"{one.study.name} has no metric {metric!r}; it has {', '.join(metrics)}.")
    metric = metric or next(iter(metrics))
    left, right = ({label: key for key, _, label in result.variants()} for result in (one, two))
    pairs = [(label, left[label], right[label]) for label in left if label in right]
    if not pairs and len(left) == len(right) == 1:
        pairs = [(f"{b} − {a}", left[a], right[b]) for a, b in zip(left, right, strict=True)]
    if not pairs:
        raise ValueError(f"no variant is in both: {', '.join(left)} against {', '.join(right)}.")
    rows: list[dict[str, Any]] = []
    for label, a, b in pairs:
        before, after = one.values(a, metric), two.values(b, metric)
        if not set(before) & set(after):
            continue
        difference = paired(after, before)
        rows.append(
            {
                "variant": label,
                "metric": metric,
                "first": str(one.summary(a, metric)),
                "second": str(two.summary(b, metric)),
                "difference": difference.mean,
                "interval": difference.interval,
                "seeds": difference.n,
                "p": difference.p,
                "says": str(difference),
            }
        )
    if not rows:
        raise ValueError("the two runs have no seed in common; run both with the same seeds.")
    corrected = iter(holm([row["p"] for row in rows if row["p"] is not None]))
    for row in rows:
        row["p"] = next(corrected) if row["p"] is not None else None
    return rows
