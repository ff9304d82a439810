"""What a run found: a table beside the published one, comparisons between variants, a figure."""

from __future__ import annotations

import html
import io
import itertools
import re
from typing import Any

from .statistics import Agreement, Difference, Summary, against, holm, paired, summarize
from .store import Run, Store, Trial
from .study import Study, find


class Result:
    """A run's trials, read from the store when asked; `print(result)` is the table."""

    def __init__(self, study: Study | str, run: Run, store: Store):
        self.study, self.run, self.store = find(study), run, store

    @property
    def trials(self) -> list[Trial]:
        return self.store.trials(self.run)

    @property
    def failures(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.status == "failed"]

    @property
    def complete(self) -> bool:
        return sum(trial.status == "done" for trial in self.trials) == len(self.run.variants) * len(
            self.run.seeds
        )

    def variants(self) -> list[tuple[str, dict[str, Any], str]]:
        """(key, settings, label) in order."""
        kind = self.study.settings
        return [(key, chosen, self.study.label(kind(**chosen))) for key, chosen in self.run.variants]

    def values(self, key: str, metric: str) -> dict[int, float]:
        """A metric by seed, for the variant of that key."""
        return {
            trial.seed: trial.results[metric]
            for trial in self.trials
            if trial.key == key and trial.status == "done" and trial.results.get(metric) is not None
        }

    def summary(self, key: str, metric: str) -> Summary | None:
        values = list(self.values(key, metric).values())
        return summarize(values, ddof=self.study.ddof) if values else None

    def agreement(self, key: str, metric: str) -> Agreement | None:
        """With the published figure, where there is one. Quick profiles are not held to it."""
        figure = self.study.published(dict(self.run.variants)[key]).get(metric)
        values = list(self.values(key, metric).values())
        if figure is None or not values or self.run.profile == "quick":
            return None
        return against(values, figure)

    def comparisons(self, metric: str | None = None) -> list[dict[str, Any]]:
        """Every two variants, paired by seed, p corrected for their number (Holm)."""
        metric = metric or next(iter(self.study.metrics))
        found: list[tuple[str, str, Difference]] = []
        for (a, _, left), (b, _, right) in itertools.combinations(self.variants(), 2):
            one, two = self.values(a, metric), self.values(b, metric)
            if set(one) & set(two):
                found.append((left, right, paired(one, two)))
        tested = [n for n, (_, _, difference) in enumerate(found) if difference.p is not None]
        corrected = dict(zip(tested, holm([found[n][2].p or 0.0 for n in tested]), strict=True))
        return [
            {"variant": a, "against": b, "metric": metric, "difference": d.mean, "interval": d.interval,
             "seeds": d.n, "p": d.p, "p corrected": corrected.get(n), "says": str(d)}
            for n, (a, b, d) in enumerate(found)
        ]  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """A record a variant: its axes, each metric as mean ± std, what was published, the verdict."""
        found = []
        for key, chosen, _ in self.variants():
            row: dict[str, Any] = {axis: chosen[axis] for axis in self.study.axes}
            done = sum(trial.key == key and trial.status == "done" for trial in self.trials)
            row["seeds"] = done if done == len(self.run.seeds) else f"{done} of {len(self.run.seeds)}"
            published = self.study.published(chosen)
            for metric in self.measured():
                summary = self.summary(key, metric)
                row[metric] = str(summary) if summary else None
                if any(metric in self.study.published(other) for _, other in self.run.variants):
                    row[f"{metric}, published"] = str(published[metric]) if metric in published else None
                agreement = self.agreement(key, metric)
                if agreement is not None:
                    row[f"{metric}, verdict"] = str(agreement)
                for who, figures in self.study.elsewhere(chosen).items():
                    if metric in figures and summary:
                        off = summary.mean - figures[metric].value
                        row[f"{metric}, {who}"] = f"{figures[metric]} (ours {off:+.3g})"
            found.append(row)
        names = list(dict.fromkeys(name for row in found for name in row))
        return [{name: row.get(name) for name in names} for row in found]

    def measured(self) -> dict[str, str]:
        """The study's metrics, but for those that no trial could measure (a step it did not reach)."""
        done = [trial.results for trial in self.trials if trial.status == "done"]
        return {
            name: what
            for name, what in self.study.metrics.items()
            if not done or any(results.get(name) is not None for results in done)
        }

    def remarks(self) -> list[str]:
        """What a study has to show that is no number: what it wrote, for one."""
        own = getattr(self.study.settings, "remarks", None)
        return [] if own is None else list(own(self))

    def table(self) -> str:
        """The rows as text."""
        from rich.console import Console

        from ..display import show_rows

        text = io.StringIO()
        show_rows(self.rows(), Console(file=text, width=200), f"{self.study.name}: {self.study.question}")
        shown = [f"\n{remark}" for remark in self.remarks()]
        return "\n".join([text.getvalue().rstrip(), *self.notes(), *shown])

    def notes(self) -> list[str]:
        """What the numbers are, how they were spread, and what failed."""
        lines = [f"{name}: {what}" for name, what in self.measured().items()]
        spread = "n" if self.study.ddof == 0 else "n − 1"
        lines.append(
            f"mean ± standard deviation over seeds (divided by {spread}); {self.run.profile} profile"
        )
        for trial in self.failures:
            label = self.study.label(self.study.settings(**trial.settings))
            lines.append(f"failed: {label}, seed {trial.seed}: {_said(trial.error or '')}")
        return lines

    def frame(self):
        """A pandas DataFrame, one row a trial."""
        try:
            import pandas
        except ImportError:
            raise ImportError("Result.frame() needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """One record a trial: settings, seed, results."""
        return [
            {
                **trial.settings,
                "seed": trial.seed,
                "status": trial.status,
                "seconds": trial.seconds,
                **trial.results,
            }
            for trial in self.trials
        ]

    def figure(self):
        """The study's own picture, or means with their intervals beside the published figures."""
        draw = getattr(self.study.settings, "figure", None)
        if draw is not None:
            return draw(self)
        from .figures import means

        return means(self)

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "question": self.study.question,
            "source": self.study.source,
            "run": self.run.id,
            "profile": self.run.profile,
            "settings": self.run.settings,
            "seeds": self.run.seeds,
            "complete": self.complete,
            "about": self.run.about,
            "rows": self.rows(),
            "comparisons": self.comparisons() if self.study.metrics else [],
            "trials": self.records(),
            "remarks": self.remarks(),
        }

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return f"<h4>{html.escape(self.study.question)}</h4>{html_table(self.rows())}"


def html_table(rows: list[dict[str, Any]], raw: type | None = None) -> str:
    """Records as an HTML table; cells of type `raw` are HTML already."""
    if not rows:
        return "<p>nothing yet</p>"

    def cell(thing) -> str:
        if thing is None:
            return "–"
        if raw is not None and isinstance(thing, raw):
            return str(thing)
        text = html.escape(str(thing))
        return text.replace(" ± ", "&nbsp;±&nbsp;") if len(text) < 24 else text

    def named(name: str, thing) -> str:
        """With its column's name, which a phone shows beside it: there a row is a card."""
        return f'<td data-name="{html.escape(name, quote=True)}">{cell(thing)}</td>'

    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    lines = ("".join(named(name, thing) for name, thing in row.items()) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _said(error: str) -> str:
    """Of a traceback what was wrong and, where the message goes on, what to do: its first and last line."""
    lines = error.strip().splitlines()
    frames = [n for n, line in enumerate(lines) if line.startswith("  File ")]
    message = list(
        itertools.dropwhile(lambda line: line.startswith(" "), lines[frames[-1] + 1 if frames else 0 :])
    )
    if not message:
        return ""
    first = re.sub(r"^(\w+\.)+(\w+)(:|$)", r"\2\3", message[0])
    return first if len(message) == 1 else f"{first} {message[-1]}"
