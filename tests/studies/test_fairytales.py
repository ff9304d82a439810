"""The study of a parrot: its split, its resuming, its options, and its use while it learns."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from heedful import cli, data, lab
from heedful.studies import fairytales
from heedful.studies.fairytales import LOG, Fairytales, _around, _book

SMALL = {"steps": "30", "characters": "1500", "every": "15", "batch": "8"}


def run(tmp_path, **settings):
    result = lab.run(
        "fairytales",
        profile="quick",
        seeds=1,
        settings={**SMALL, **settings},
        store=tmp_path,
        backend="loop",
    )
    for trial in result.failures:
        pytest.fail(trial.error)
    return result


def test_the_full_profile_is_the_course_s():
    [settings] = lab.find("fairytales").variants("full")
    chosen = (settings.size, settings.block, settings.batch, settings.rate, settings.decay, settings.dropout)
    assert chosen == ("mini", 128, 128, 5e-4, 0.1, 0.1)
    published = lab.find("fairytales").published(vars(settings))
    assert (published["step 999"].value, published["step 3999"].value) == (0.965, 0.338)
    assert published["step 3999"].within == pytest.approx(0.05 * 0.338)


def test_the_full_text_has_4219_steps_an_epoch():
    if data.where("fairytales")[0].state not in ("local", "cached"):
        pytest.skip("Grimms' tales are not here: heedful data fetch fairytales")
    book = _book("fairytales", None, 0.02, "characters", 1024)
    assert book.tokens.size == 87
    assert (len(book.read) + len(book.unread) - 128) // 128 == 4219


def test_what_is_held_out_is_not_read():
    text = data.load("python-docs").text[:3000]
    book = _book("python-docs", 3000, 0.15, "characters", 1024)
    unread = book.tokens.decode(book.unread)
    at = text.index(unread)
    assert len(unread) == 450 and book.pages == text[:at] + text[at + 450 :]
    assert book.tokens.decode(book.read) == book.pages
    counts = torch.bincount(book.read).double() / len(book.read)
    assert book.unigram == pytest.approx(float(torch.special.entr(counts).sum()))


def test_loss_at_a_step_is_that_of_the_steps_around():
    losses = [float(n) for n in range(1100)]
    assert _around(losses, 999) == 999 and _around(losses, 49) == 49
    assert _around(losses[:1000], 999) != _around(losses[:1000], 999)  # not there: NaN
    assert all(step in LOG for step in (49, 99, 199, 499, 999, 1999, 3999))


# Killed at step 17 of 30, between checkpoints and in the middle of an epoch.
KILLED = """
import os, signal, sys
from heedful import lab
from heedful.studies import fairytales

fairytales.SECONDS = 0.0
keep = fairytales._Keeper.__call__

def killing(self, now):
    keep(self, now)
    if now.step == 17:
        os.kill(os.getpid(), signal.SIGKILL)

fairytales._Keeper.__call__ = killing
lab.run("fairytales", profile="quick", seeds=1, settings=eval(sys.argv[2]), store=sys.argv[1], backend="loop")
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_it_goes_on_to_the_same_result(tmp_path, monkeypatch):
    whole = run(tmp_path / "whole").trials[0]
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), repr(SMALL)]
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    killed = subprocess.run(arguments, env={**os.environ, **threads}, capture_output=True, timeout=300)
    assert killed.returncode == -9, killed.stderr.decode()
    left = lab.kept(store=str(tmp_path / "killed"), use="text")  # what it had learned can be used
    assert left.trial.status == "interrupted"
    seen = []
    keep = fairytales._Keeper.__call__
    monkeypatch.setattr(
        fairytales._Keeper, "__call__", lambda self, now: (seen.append(now.step), keep(self, now))
    )
    again = run(tmp_path / "killed").trials[0]
    assert seen[0] == 17  # the checkpoint of step 16 was the last
    assert again.results == whole.results
    curves = [
        lab.Store(tmp_path / name).curves(trial) for name, trial in (("whole", whole), ("killed", again))
    ]
    assert curves[0] == curves[1]
    assert not list(again.folder.glob("checkpoint/*"))


def test_text_from_a_model_that_still_trains(tmp_path, monkeypatch, capsys):
    said = []
    keep = fairytales._Keeper.__call__

    def writing(self, now):
        keep(self, now)
        if now.row is not None and now.step < 30:
            order = ["generate", "--runs", str(tmp_path), "--prompt", "The", "--length", "20", "--seed", "1"]
            said.append((now.step, cli.main([*order, "--json"]), capsys.readouterr().out))

    monkeypatch.setattr(fairytales._Keeper, "__call__", writing)
    run(tmp_path)
    [(step, status, out)] = said
    found = json.loads(out)
    assert step == 15 and status == 0 and found["model"].endswith("seed 0, running")
    assert len(found["texts"][0]["text"]) == 20


def test_your_own_text_in_pieces(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Der Fischer und seine Frau saßen am Meer und schwiegen. " * 80)
    options = {"tokens": "bpe", "pieces": "280", "position": "alibi", "norm": "layer", "similarity": "elu"}
    result = run(tmp_path / "runs", text=str(path), **options, characters="none", held="0.2")
    assert "|" in result.remarks()[0]
    found = lab.kept(store=str(tmp_path / "runs"), use="text")
    assert found.model.config["position"] == "alibi" and found.model.config["norm"] == "layer"
    pieces = data.tokens_of(found.notes)
    assert isinstance(pieces, data.Pieces) and pieces.decode(pieces.encode("saßen")) == "saßen"


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"text": "fairytail"}, "did you mean 'fairytales'?"),
        ({"held": 0.9}, "held is 0.9; it is the share held out"),
        ({"characters": 200, "held": 0.1}, "too few for a block of 32"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_says_why(settings, words, tmp_path):
    quick = {**Fairytales.quick, "axes": None, "size": "nano", "text": "python-docs", **settings}
    del quick["axes"]
    with pytest.raises(ValueError) as error:
        Fairytales(**quick).run(0, Desk(tmp_path))
    assert words in str(error.value)


class Desk:
    """Where nothing gets to."""

    device = torch.device("cpu")

    def __init__(self, folder):
        self.folder = folder


def test_the_report_shows_what_it_wrote(tmp_path):
    from heedful.lab.report import report

    result = run(tmp_path)
    page = report(tmp_path, tmp_path / "page.html").read_text()
    assert "temperature 0.65, top-p 0.85" in page and "Yesterday I went to the |" in page
    assert str(result).count("temperature") == 4
    assert "step 999" not in result.rows()[0]  # not reached


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_steps_are_recorded(tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="train\\(capture=True\\)")  # a step taken as usual warns
        settings = {"steps": "120", "every": "30", "dropout": "0.1"}
        result = lab.run(
            "fairytales", profile="quick", seeds=1, settings=settings, store=tmp_path, device="cuda"
        )
    [trial] = result.trials
    assert trial.status == "done", trial.error
    curves = result.store.curves(trial)
    assert curves["loss"][-1][1] < curves["loss"][0][1] - 1
    assert len({value for _, value in curves["unread"]}) == 4  # each look is at new weights


def test_the_page_s_python_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs/fairytales.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/fairytales.md", "exec", dont_inherit=True), {"__name__": "page"})
    assert re.search(r"'The list is.* copies \d+ characters: ", capsys.readouterr().out)
