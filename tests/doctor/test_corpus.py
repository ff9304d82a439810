"""The doctor's score: planted bugs are found, healthy programs left in peace, whatever the seed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.doctor import KINDS
from heedful.doctor.selftest import _lacking

CORPUS = Path(__file__).parent / "corpus"
PLANTED = json.loads((CORPUS / "planted.json").read_text())


def test_the_corpus_is_what_it_says():
    programs = {str(path.relative_to(CORPUS)) for path in CORPUS.rglob("*.py")}
    assert programs == set(PLANTED)
    bugs = [name for name in PLANTED.values() if name]
    assert len(bugs) >= 40 and len(PLANTED) - len(bugs) >= 40
    assert set(bugs) <= set(KINDS)
    for path in CORPUS.rglob("*.py"):
        assert "doctor" not in path.read_text(), "a stranger's program knows nothing of the doctor"


def test_every_finding_is_planted_twice():
    planted = list(PLANTED.values())
    assert {name: planted.count(name) for name in KINDS if planted.count(name) < 2} == {}


def test_patches_heal(seed):
    """Of some programs of different kinds: patched, run again, and what was planted is gone."""
    words = ["critic_never", "schedule_first", "pieces_every_fourth", "smoothed_loss", "tags_in", "no_mask"]
    words += ["attention_forgotten", "adapters_of_zeros", "quantile_against", "batch_second", "loader_starts"]
    code = (  # a process of its own, for it forks
        "import json, sys; from heedful.doctor.selftest import self_test; "
        "trials = self_test(only=json.loads(sys.argv[1]), seed=int(sys.argv[2]), prove=True).trials; "
        "print(json.dumps([[trial.program, trial.healed] for trial in trials if trial.planted]))"
    )
    command = [sys.executable, "-c", code, json.dumps(words), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    healed = dict(json.loads(done.stdout))
    assert len(healed) == len(words) and all(healed.values()), healed


def self_test(seed: int, *options: str) -> dict:
    """In a process of its own: programs are run in forks of it."""
    command = [sys.executable, "-m", "heedful", "doctor", "--self-test", "--json", "--no-prove"]
    done = subprocess.run(
        [*command, "--seed", str(seed), *options], capture_output=True, text=True, timeout=900
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def score(request):
    return self_test(request.config.seed)


def test_programs_held_out(seed):
    """Those the doctor was not made with: of every kind one, and no worse than at first sight."""
    folder = CORPUS.with_name("held_out")
    planted = json.loads((folder / "planted.json").read_text())
    assert set(planted) == {str(path.relative_to(folder)) for path in folder.rglob("*.py")}
    assert set(planted.values()) - {None} == set(KINDS)
    score = self_test(seed, "--corpus", str(folder))
    missed = [t["program"] for t in score["programs"] if t["planted"] and t["planted"] not in t["found"]]
    assert score["recall"] >= 0.9, missed
    assert score["false alarms"] <= 1, [t for t in score["programs"] if not t["planted"] and t["found"]]


def test_recall(score):
    missed = [t["program"] for t in score["programs"] if t["planted"] and t["planted"] not in t["found"]]
    assert score["recall"] >= 0.95, missed


def test_false_alarms(score):
    assert score["false alarms"] <= 1, [t for t in score["programs"] if not t["planted"] and t["found"]]


def test_precision(score):
    wrong = {t["program"]: t["found"] for t in score["programs"] if set(t["found"]) - {t["planted"]}}
    assert score["precision"] >= 0.95, wrong


@pytest.mark.parametrize("library", ["pytorch_lightning", "transformers"])
def test_loops_that_a_library_runs(score, library):
    """Planted and healthy scripts of each; where it is not installed, they are left out by name."""
    scripts = {
        name for name in PLANTED if f"from {library} " in _text(name) or f"import {library}" in _text(name)
    }
    assert {bool(PLANTED[name]) for name in scripts} == {True, False}
    if importlib.util.find_spec(library) is None:
        assert scripts <= set(score["skipped"])
        pytest.skip(f"{library} is not installed: its {len(scripts)} scripts were left out")
    trials = [t for t in score["programs"] if t["program"] in scripts]
    assert len(trials) == len(scripts)
    assert [t["program"] for t in trials if t["found"] != [t["planted"]] * bool(t["planted"])] == []


def _text(name: str) -> str:
    return (CORPUS / name).read_text(encoding="utf-8")


def test_what_a_program_lacks_is_named():
    assert _lacking("import torch\nimport nowhere_to_be_found.inside") == "nowhere_to_be_found"
    assert _lacking("from torch import nn\nimport json") == ""


def test_no_program_breaks(score):
    """No observer failed on any of them, and every healthy one ran to its end."""
    notes = [(t["program"], n) for t in score["programs"] for n in t["notes"] if "could not" in n]
    assert notes == []
    assert [t["program"] for t in score["programs"] if t["failed"] and not t["planted"]] == []
