"""Every study and claim in a line: last result beside the published figure, verdict, cost."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..claims import Verdict, claims
from ..claims.page import FILE
from ..claims.page import read as read_verdicts
from ..doctor.report import Report
from ..lab import Store, Study, studies
from ..lab.report import newest, verdict
from .jobs import Jobs
from .live import Moment, state

KINDS = {"holds": "good", "holds, corrected": "open", "fails": "bad"}


def study_lines(store: Store, jobs: Jobs) -> list[dict[str, Any]]:
    """A study each, with the run to show of it (a full one before a quick one) and whether one is at work."""
    shown = {result.study.name: Moment(result.study, result.run, store) for result in newest(store)}
    working = {job.subject: job for job in jobs.all() if job.kind == "run" and job.alive}
    return [
        {
            "study": study,
            "run": shown[name].run if name in shown else None,
            "verdict": verdict(shown[name]) if name in shown else None,
            "figure": (figure := headline(shown[name]) if name in shown else None),
            "published": (figure or {}).get("published") or published(study),
            "job": working.get(name),
        }
        for name, study in studies().items()
    ]


def headline(moment: Moment) -> dict[str, Any] | None:
    """One number of a run, beside what was published for it where something was."""
    found = []
    for key, chosen, label in moment.variants():
        for metric in moment.study.metrics:
            summary, figure = moment.summary(key, metric), moment.study.published(chosen).get(metric)
            if summary is not None:
                line = {"variant": label, "metric": metric, "ours": str(summary)}
                found.append({**line, "published": {"value": str(figure)} if figure else None})
    return next((line for line in found if line["published"]), found[0] if found else None)


def published(study: Study) -> dict[str, str] | None:
    """The first figure that was published for a study, and for which variant of it."""
    for variant in study.variants("full"):
        for metric, figure in study.published(asdict(variant)).items():
            return {"value": str(figure), "variant": study.label(variant), "metric": metric}
    return None


def run_lines(store: Store, jobs: Jobs, study: str) -> list[dict[str, Any]]:
    """A study's runs, newest first."""
    return [
        {
            "run": run,
            "state": state(moment := Moment(study, run, store), jobs),
            "done": moment.count("done"),
            "total": moment.total,
            "date": time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started)),
        }
        for run in store.runs(study)
    ]


def verdicts(runs: Path) -> dict[str, Verdict]:
    """The verdicts kept, by id; nothing while the file is being written."""
    try:
        return {entry.id: entry for entry in read_verdicts(runs / FILE)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def claim_groups(runs: Path) -> dict[str, list[dict[str, Any]]]:
    """Claims by document, each with its verdict or None."""
    kept = verdicts(runs)
    found: dict[str, list[dict[str, Any]]] = {}
    for claim in claims().values():
        said = kept.get(claim.id)
        line = {"claim": claim, "verdict": said, "kind": KINDS.get(said.verdict, "open") if said else ""}
        found.setdefault(claim.document, []).append(line)
    return found


def reports(runs: Path) -> dict[str, Report | None]:
    """The doctor's reports kept as JSON in runs/doctor, by name; None for a file that is no report."""
    return {path.stem: _report(path) for path in sorted((runs / "doctor").glob("*.json"))}


def _report(path: Path) -> Report | None:
    try:
        report = Report.from_dict(json.loads(path.read_text(encoding="utf-8")))
        for finding in report.findings:
            _ = finding.kind  # one that this version knows
        return report
    except (OSError, ValueError, KeyError, TypeError):
        return None
