"""Running studies: three ways with one answer, resuming, errors, settings read from text."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
import requests

from heedful import lab
from heedful.lab.study import find
from heedful.studies import cora

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))  # so that worker processes find the module by its name
import toys  # noqa: E402


@pytest.fixture(autouse=True)
def _importable_elsewhere(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{FOLDER}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.mark.parametrize("backend", ["loop", "processes", "stacked", "auto"])
def test_the_same_results_every_way(backend, tmp_path):
    here = lab.run("toy-line", store=tmp_path / "here", backend="loop")
    there = lab.run("toy-line", store=tmp_path / "there", backend=backend)
    assert here.complete and there.complete
    for (a, _, _), (b, _, _) in zip(here.variants(), there.variants(), strict=True):
        assert here.values(a, "height") == there.values(b, "height")
    assert there.store.curves(there.trials[0]) == here.store.curves(here.trials[0])


def test_nothing_is_run_twice(tmp_path):
    first = lab.run("toy-line", seeds=2, store=tmp_path)
    more = lab.run("toy-line", seeds=4, store=tmp_path)
    assert [t.id for t in first.trials] == [t.id for t in more.trials if t.seed < 2]
    fresh = lab.run("toy-line", seeds=2, store=tmp_path, again=True)
    assert not {t.id for t in fresh.trials} & {t.id for t in more.trials if t.seed >= 2}
    assert fresh.values(fresh.variants()[0][0], "height") == first.values(first.variants()[0][0], "height")
    assert len(more.store.runs("toy-line")) == 3


def test_killed_and_run_again(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import toys; from heedful import lab\n"
        "where = sys.argv[2]\n"
        "lab.run('toy-killed', seeds=4, store=where + '/runs', settings={'folder': where}, backend='loop')"
    )
    command = [sys.executable, "-c", script, str(FOLDER), str(tmp_path)]
    assert subprocess.run(command, timeout=120).returncode == -9
    with lab.Store(tmp_path / "runs") as store:
        states = {trial.seed: trial.status for trial in store.trials()}
        assert states == {0: "done", 1: "done", 2: "interrupted"}
    assert subprocess.run(command, timeout=120).returncode == 0
    with lab.Store(tmp_path / "runs") as store:
        assert [trial.status for trial in store.trials(store.run("latest"))] == ["done"] * 4
    assert Counter((tmp_path / "visits").read_text().split()) == {"0": 1, "1": 1, "2": 2, "3": 1}


def test_a_worker_that_dies_is_told_of(tmp_path):
    settings = {"folder": str(tmp_path)}
    with pytest.raises(RuntimeError, match=r"a worker process died.*run the same command again"):
        lab.run("toy-killed", seeds=4, store=tmp_path / "runs", settings=settings, backend="processes")
    result = lab.run("toy-killed", seeds=4, store=tmp_path / "runs", settings=settings, backend="loop")
    assert result.complete


def test_a_data_set_that_is_missing_offline_is_told_of(tmp_path, monkeypatch):
    """What is missing and what to do, not only the last line of a traceback."""
    monkeypatch.delenv("HEEDFUL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def refused(*_, **__):
        raise requests.ConnectionError("no network")

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", refused)
    cora._papers.cache_clear()
    settings = {"model": "gcn", "dataset": "citeseer"}
    text = str(lab.run("cora", seeds=1, store=tmp_path / "runs", settings=settings, backend="loop"))
    assert "failed: citeseer gcn, seed 0: DataError: citeseer: planetoid/ind.citeseer." in text
    assert "is missing. Run `heedful data fetch citeseer` where there is a network" in text


def test_errors_are_kept_and_the_rest_goes_on(tmp_path):
    result = lab.run("toy-trouble", seeds=3, store=tmp_path)
    by_kind = Counter((t.settings["kind"], t.status) for t in result.trials)
    assert by_kind == {
        ("fine", "done"): 3, ("raises", "done"): 2, ("raises", "failed"): 1,
        ("nothing", "failed"): 3, ("wrong", "failed"): 3,
    }  # fmt: skip
    text = str(result)
    assert "failed: raises, seed 1: ZeroDivisionError: one is a bad seed" in text
    assert "run() returned no value" in text and "must return numbers by name, got float" in text
    assert "2 of 3" in text and not result.complete


def test_the_table_stands_beside_the_published_one(tmp_path):
    result = lab.run("toy-line", seeds=4, store=tmp_path)
    flat, steep = result.rows()
    assert flat["height, published"] is None and steep["height, published"] == "5 ± 0.1"
    assert steep["height, verdict"].startswith("reproduced within ±0.5")
    assert "noise, published" not in flat
    [comparison] = result.comparisons()
    assert comparison["difference"] == pytest.approx(-5) and comparison["p corrected"] < 1e-6
    assert result.to_dict()["rows"] == result.rows()
    assert "<table>" in result._repr_html_()
    quick = lab.run("toy-line", profile="quick", store=tmp_path)
    assert "height, verdict" not in quick.rows()[0]  # a quick profile is not held to the figure
    assert [len(quick.run.seeds), quick.trials[0].settings["steps"]] == [2, 2]


def test_a_figure_without_drawing_one(tmp_path):
    figure = lab.run("toy-line", seeds=2, store=tmp_path).figure()
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"slop": "flat"}, "no setting 'slop'; did you mean 'slope'?"),
        ({"slope": "stepp"}, "slope is 'stepp'; it is one of flat, steep; did you mean 'steep'?"),
        ({"steps": "many"}, "steps is 'many'; it takes a whole number"),
        ({"steps": "2.5"}, "steps is '2.5'; it takes a whole number"),
        ({"rate": "fast"}, "rate is 'fast'; it takes a number"),
        ({"wide": "maybe"}, "wide is 'maybe'; it is yes or no"),
    ],
)
def test_settings_that_are_wrong(given, said, tmp_path):
    with pytest.raises(ValueError) as caught:
        lab.run("toy-line", settings=given, store=tmp_path)
    assert said in str(caught.value)
    assert not (tmp_path / "lab.sqlite").exists()


def test_settings_are_read_from_text():
    given = {"slope": "steep", "steps": "3", "rate": "1e-3", "wide": "yes", "tags": "a, b", "limit": "none"}
    [settings] = find("toy-line").variants("full", given)
    assert asdict(settings) == asdict(toys.Line("steep", 3, 1e-3, True, ("a", "b"), None))
    assert find("toy-line").variants("full", {"limit": "7"})[0].limit == 7


def test_names_and_numbers_that_are_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"no study 'toy-lime'; did you mean 'toy-line'\?"):
        lab.run("toy-lime", store=tmp_path)
    with pytest.raises(ValueError, match="seeds is 0; it takes 1 or more"):
        lab.run("toy-line", seeds=0, store=tmp_path)
    with pytest.raises(ValueError, match="different whole numbers"):
        lab.run("toy-line", seeds=[1, 1], store=tmp_path)
    with pytest.raises(ValueError, match="backend is 'threads'"):
        lab.run("toy-line", backend="threads", store=tmp_path)
    with pytest.raises(ValueError, match=r"backend is 'stack'; .* did you mean 'stacked'\?"):
        lab.run("toy-line", backend="stack", store=tmp_path)
    with pytest.raises(ValueError, match="workers is 0; it takes 1 or more"):
        lab.run("toy-line", workers=0, store=tmp_path)
    with pytest.raises(ValueError, match="device is 'tpu'; it is cpu or cuda"):
        lab.run("toy-line", device="tpu", store=tmp_path)
    with pytest.raises(ValueError, match=r"device is 'cuda:99'; torch .* sees \d+ CUDA devices here"):
        lab.run("toy-line", device="cuda:99", store=tmp_path)
    with pytest.raises(ValueError, match="cannot be trained stacked"):
        lab.run("toy-slow", backend="stacked", store=tmp_path)
    with pytest.raises(ValueError, match="profile is 'fast'"):
        lab.run("toy-line", profile="fast", store=tmp_path)


def test_studies_that_are_not_one():
    with pytest.raises(TypeError, match="must be a dataclass"):
        lab.study("x", "?", source="")(type("X", (), {}))
    assert "x" not in lab.studies()


def test_an_unknown_engine(tmp_path):
    with pytest.raises(ValueError, match="engine is 'slurm'; it is one of here, ray"):
        lab.run("toy-slow", engine="slurm", store=tmp_path)


def test_a_ray_cluster_finds_the_same(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'heedful[ray]')")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        away = lab.run("toy-line", seeds=2, store=tmp_path / "away", engine="ray")
        broken = lab.run("toy-trouble", seeds=2, store=tmp_path / "away", engine="ray")
    finally:
        ray.shutdown()
    here = lab.run("toy-line", seeds=2, store=tmp_path / "here", backend="loop")
    assert [t.results for t in away.trials] == [t.results for t in here.trials]
    assert [t.backend for t in away.trials] == ["ray"] * 4
    assert [away.store.curves(t) for t in away.trials] == [here.store.curves(t) for t in here.trials]
    assert any("one is a bad seed" in trial.error for trial in broken.failures)


def test_what_comes_back_from_a_cluster(tmp_path):
    """Without one: the worker's half and the keeping half, in this process."""
    from heedful.lab.cluster import trained_away

    Line = toys.Line
    parcel = trained_away("toys", "toy-line", asdict(Line(slope="steep")), 3, "cpu")
    entry = lab.find("toy-line")
    with lab.Store(tmp_path) as store:
        settings = Line(slope="steep")
        asked = store.begin("toy-line", "full", {}, [3], [(entry.key(settings), asdict(settings))])
        trial = store.claim(asked, entry.key(settings), 3, backend="ray")
        parcel.files["sub/note.txt"] = b"kept"
        parcel.unpack(trial, store)
        (kept,) = store.trials(asked)
        assert kept.status == "done" and kept.results == parcel.results
        assert store.curves(kept)["height"] == parcel.curves["height"] != []
        assert (kept.folder / "sub" / "note.txt").read_bytes() == b"kept"


def test_what_others_published_stands_beside(tmp_path, monkeypatch):
    figure = lab.Figure(4.0, std=0.2)
    settings = find("toy-line").settings
    monkeypatch.setattr(settings, "also", {"Others 2020": {("steep",): {"height": figure}}}, raising=False)
    flat, steep = lab.run("toy-line", seeds=2, store=tmp_path, backend="loop").rows()
    assert steep["height, Others 2020"].startswith("4 ± 0.2 (ours +1")
    assert flat["height, Others 2020"] is None


def test_workers_leave_with_the_process_that_started_them(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import toys; from heedful import lab\n"
        "lab.run('toy-slow', seeds=2, store=sys.argv[2], settings={'seconds': 60}, backend='processes')"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(FOLDER), str(tmp_path)])
    try:
        workers = _until(lambda: _running(tmp_path, 2))
    finally:
        owner.kill()
        owner.wait()
    assert _until(lambda: not any(_alive(pid) for pid in workers))
    with lab.Store(tmp_path) as store:
        assert {trial.status for trial in store.trials()} == {"interrupted"}


def _running(folder, count):
    if not (folder / "lab.sqlite").exists():
        return None
    with sqlite3.connect(folder / "lab.sqlite") as base:
        try:
            found = [pid for (pid,) in base.execute("SELECT pid FROM trial WHERE status = 'running'")]
        except sqlite3.OperationalError:
            return None
    return found if len(set(found)) == count else None


def _alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def _until(there, seconds=60):
    end = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


def test_what_has_stopped_is_kept_whatever_becomes_of_the_stack(tmp_path):
    result = lab.run("toy-stack", seeds=4, store=tmp_path, backend="stacked")
    assert [trial.status for trial in result.trials] == ["done", "done", "failed", "failed"]
    alone = lab.run("toy-stack", seeds=[0, 1, 3], store=tmp_path / "alone", backend="loop")
    key = alone.variants()[0][0]
    for seed, loss in result.values(key, "loss").items():
        assert loss == pytest.approx(alone.values(key, "loss")[seed], rel=1e-5)
    assert all(len(result.store.curves(trial)["loss"]) == 3 for trial in result.trials[:2])
    assert "two is a bad seed" in result.trials[3].error
