"""The store: many writers, killed writers, full disks, foreign files."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sqlite3

import pytest

from heedful.lab.store import Busy, Store, StoreError


def begin(store, seeds=(0, 1), name="toy"):
    return store.begin(name, "full", {"size": 3}, list(seeds), [("k1", {"size": 3}), ("k2", {"size": 4})])


def test_a_run_is_written_down(tmp_path):
    with Store(tmp_path) as store:
        run = begin(store)
        assert json.loads((tmp_path / run.id / "run.json").read_text())["seeds"] == [0, 1]
        again = store.run(run.id)
        assert again == run
        assert store.run("latest").id == run.id and store.run("toy").id == run.id
        assert {"heedful", "torch", "python", "machine", "command"} <= set(again.about)
        store.finish(run)
        assert store.run(run.id).finished is not None
        with pytest.raises(ValueError, match="holds no run 'nothing'"):
            store.run("nothing")
    with Store(tmp_path / "new") as store, pytest.raises(ValueError, match="no runs yet"):
        store.run("latest")


def test_a_trial_is_claimed_done_and_found(tmp_path):
    with Store(tmp_path) as store:
        run = begin(store)
        trial = store.claim(run, "k1", 0)
        assert trial.status == "running"
        store.log(trial, 0, loss=2.0)
        store.log(trial, 1, loss=1.0, accuracy=math.nan)
        store.log(trial, 1, loss=0.5)
        store.done(trial, {"score": 3.0, "bad": math.inf})
        [found] = store.trials(run)
        assert (found.status, found.results) == ("done", {"score": 3.0, "bad": None})
        curves = store.curves(found)
        assert curves["loss"] == [(0, 2.0), (1, 0.5)]
        assert math.isnan(curves["accuracy"][0][1])
        assert store.claim(run, "k1", 0).status == "done"
        assert store.claim(run, "k1", 0, again=True).status == "running"
        assert store.curves(store.trials(run)[0]) == {}


def test_a_sketch_is_some_of_a_curve_the_same_steps_for_all(tmp_path):
    with Store(tmp_path) as store:
        run = begin(store)
        lengths = {0: 100, 1: 37}
        trials = [store.claim(run, "k1", seed) for seed in lengths]
        for trial in trials:
            for step in range(0, lengths[trial.seed]):
                store.log(trial, step, loss=math.nan if step == 16 else step + 0.5)
        store.log(trials[0], 7, odd=1.0)
        assert store.reached(trials) == {"loss": 99, "odd": 7}
        for trial in trials:
            whole, found = dict(store.curves(trial)["loss"]), store.sketch(trial, {"loss": 8, "odd": 1})
            last = lengths[trial.seed] - 1
            assert [step for step, _ in found["loss"]] == [*range(0, last, 8), *([last] if last % 8 else [])]
            assert all(value == whole[step] or step == 16 for step, value in found["loss"])
        assert store.sketch(trials[0], {"loss": 1})["loss"][:16] == store.curves(trials[0])["loss"][:16]
        assert store.sketch(trials[0], {"odd": 4})["odd"] == [(7, 1.0)]


def _hold(folder, run_id, ready, leave):
    with Store(folder) as store:
        store.claim(store.run(run_id), "k1", 0)
        ready.set()
        leave.wait(30)
        os._exit(1)  # without a word, as when killed


def test_living_writers_are_left_alone_dead_ones_are_not(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    with Store(tmp_path) as store:
        run = begin(store)
        other = context.Process(target=_hold, args=(tmp_path, run.id, ready, leave))
        other.start()
        assert ready.wait(60)
        with pytest.raises(Busy, match="is at work on it"):
            store.claim(run, "k1", 0)
        leave.set()
        other.join()
        assert store.trials(run)[0].status == "interrupted"
        assert store.claim(run, "k1", 0).status == "running"


def _write(folder, run_id, seed, count):
    with Store(folder) as store:
        trial = store.claim(store.run(run_id), "k1", seed)
        for step in range(count):
            store.log(trial, step, loss=seed + step)
        store.done(trial, {"score": seed})


def test_two_processes_write_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    with Store(tmp_path) as store:
        run = begin(store, seeds=(0, 1, 2))
        others = [context.Process(target=_write, args=(tmp_path, run.id, seed, 100)) for seed in (0, 1)]
        for other in others:
            other.start()
        _write(tmp_path, run.id, 2, 100)
        for other in others:
            other.join()
            assert other.exitcode == 0
        trials = store.trials(run)
        assert [trial.results["score"] for trial in trials] == [0, 1, 2]
        for trial in trials:
            assert store.curves(trial)["loss"] == [(step, trial.seed + step) for step in range(100)]


def test_a_transaction_that_fails_leaves_nothing(tmp_path):
    with Store(tmp_path) as store:
        run = begin(store)
        trial = store.claim(run, "k1", 0)
        with pytest.raises((TypeError, ValueError)):
            store.log(trial, 0, good=1.0, bad="not a number")
        assert store.curves(trial) == {}
        with pytest.raises(StoreError):
            store.log_many([(trial.id, "good", 0, 1.0), (trial.id, None, 0, 1.0)])
        assert store.curves(trial) == {}


def test_a_full_disk_says_so_and_loses_nothing(tmp_path):
    with Store(tmp_path) as store:
        run = begin(store)
        trial = store.claim(run, "k1", 0)
        store.done(trial, {"score": 1.0})
        pages = store._base.execute("PRAGMA page_count").fetchone()[0]
        store._base.execute(f"PRAGMA max_page_count = {pages}")  # what SQLite meets on a full disk
        other = store.claim(run, "k1", 1)
        with pytest.raises(StoreError, match=r"full\. Free some space"):
            store.log_many([(other.id, f"metric {n}", step, 0.0) for n in range(50) for step in range(500)])
        assert store.trials(run)[0].results == {"score": 1.0}
    with Store(tmp_path) as store:
        assert store.trials(run)[0].results == {"score": 1.0}


def test_a_store_from_the_future(tmp_path):
    Store(tmp_path).close()
    base = sqlite3.connect(tmp_path / "lab.sqlite")
    base.execute("PRAGMA user_version = 99")
    base.close()
    with pytest.raises(StoreError, match="newer heedful"):
        Store(tmp_path)


def test_a_file_that_is_no_store(tmp_path):
    (tmp_path / "lab.sqlite").write_text("hello " * 1000)
    with pytest.raises(StoreError, match="It is not a store"):
        Store(tmp_path)
    assert (tmp_path / "lab.sqlite").read_text().startswith("hello")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open"):
        Store(tmp_path / "file" / "runs")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="cannot"):
            Store(tmp_path)
    finally:
        tmp_path.chmod(0o700)
