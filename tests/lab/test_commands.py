"""The lab's verbs, typed."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heedful import cli, lab

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))
import toys  # noqa: E402, F401


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{FOLDER}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def heedful(capsys, *words):
    status = cli.main(words)
    said = capsys.readouterr()
    return status, said.out, said.err


def test_run_says_what_was_found_and_draws_it(capsys):
    status, out, _ = heedful(capsys, "run", "toy-line", "--seeds", "3", "--set", "rate=0.5")
    assert status == 0
    assert "toy-line: Does a steeper line rise faster?" in out and "reproduced within ±0.5" in out
    [figure] = Path("runs").glob("toy-line-*/figure.png")
    assert figure.stat().st_size > 5000


def test_seeds_of_ones_own(capsys):
    """A class shares out the seeds; what each has is asked for again as it was."""
    out = heedful(capsys, "run", "toy-line", "--seeds", "2", "--first-seed", "14", "--json")[1]
    found = json.loads(out)
    assert found["seeds"] == [14, 15] and sorted({trial["seed"] for trial in found["trials"]}) == [14, 15]
    words = ["run", "toy-line", "--profile", "quick", "--first-seed", "3", "--set", "tags=a b,c", "--json"]
    assert json.loads(heedful(capsys, *words)[1])["seeds"] == [3, 4]  # as many as the study says
    newest, before = lab.Store("runs").runs()
    assert before.command == "heedful run toy-line --profile full --seeds 2 --first-seed 14"
    again = json.loads(heedful(capsys, *shlex.split(newest.command)[1:], "--json")[1])
    assert again["seeds"] == [3, 4] and again["rows"][0]["seeds"] == 2
    lab.run("toy-line", seeds=[1, 7], settings={"slope": "steep"})
    assert "seeds=[1, 7]" in lab.Store("runs").runs()[0].command


def test_run_as_json(capsys):
    status, out, _ = heedful(capsys, "run", "toy-line", "--seeds", "2", "--set", "slope=steep", "--json")
    found = json.loads(out)
    assert status == 0 and found["complete"] and len(found["rows"]) == 1
    assert [trial["seed"] for trial in found["trials"]] == [0, 1]


def test_a_run_with_failures_says_so(capsys):
    status, out, _ = heedful(capsys, "run", "toy-trouble", "--seeds", "2")
    assert status == 1 and "failed: raises, seed 1: ZeroDivisionError" in out


def test_list_shows_the_last_result(capsys):
    heedful(capsys, "run", "toy-line", "--seeds", "4")
    status, out, _ = heedful(capsys, "list")
    assert status == 0 and "of 1 published figures: 1 reproduced" in out
    rows = {row["study"]: row for row in json.loads(heedful(capsys, "list", "--json")[1])}
    assert rows["toy-line"]["question"] == "Does a steeper line rise faster?"
    assert rows["toy-slow"]["last result"] is None


SLOW_CLAIMS = """
import time
from pathlib import Path
from heedful.claims import claim, note

def slow(draw):
    Path(f"begun-{time.time()}").touch()
    time.sleep(300)
    yield note("slept", 300)

for n in range(8):
    claim(f"X{n}", "notes", "It takes long.")(slow)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Ctrl-C as a terminal sends it")
@pytest.mark.parametrize(
    ("words", "begun", "said"),
    [
        ("run toy-slow --set seconds=300 --backend loop", 1, "is finished is kept, the same command goes on"),
        ("run toy-slow --set seconds=300 --backend processes --workers 2 --again", 2, "without --again goes"),
        ("claims --module slow.py --workers 2", 2, "verdicts are kept once all are there"),
    ],
)
def test_ctrl_c_is_one_line(tmp_path, words, begun, said):
    Path("slow.py").write_text(SLOW_CLAIMS)
    code = f"import toys\nfrom heedful import cli\nraise SystemExit(cli.main({words.split()!r}))"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as child:
        for _ in range(600):
            rows = lab.Store("runs").trials() if Path("runs/lab.sqlite").exists() else []
            if len(rows) + len(list(tmp_path.glob("begun-*"))) >= begun:
                break
            time.sleep(0.1)
        os.killpg(child.pid, signal.SIGINT)
        error = child.communicate(timeout=60)[1]
    assert child.returncode == 130 and said in error and error.count("\n") == 1, error


def test_compare_pairs_by_seed(capsys):
    names = []
    for rate in ("0.1", "0.2"):
        found = heedful(capsys, "run", "toy-line", "--seeds", "3", "--set", f"rate={rate}", "--json")
        names.append(json.loads(found[1])["run"])
    status, out, _ = heedful(capsys, "compare", *names, "--json")
    rows = json.loads(out)
    assert status == 0 and [row["variant"] for row in rows] == ["flat", "steep"]
    assert all(row["difference"] == 0 and row["seeds"] == 3 for row in rows)
    said = heedful(capsys, "compare", *names)[1]
    low, high = json.loads(out)[0]["interval"]
    assert "no clear difference" in said and f"{low:.4g} … {high:.4g}" in said
    status, _, error = heedful(capsys, "compare", names[0], "nothing")
    assert status == 2 and "holds no run 'nothing'" in error
    status, _, error = heedful(capsys, "compare", *names, "--metric", "depth")
    assert status == 2 and "no metric 'depth'; it has height, noise" in error


def test_a_store_that_cannot_be_used_is_said_in_one_line(capsys, tmp_path):
    heedful(capsys, "run", "toy-line", "--seeds", "1", "--runs", str(tmp_path / "newer"))
    with contextlib.closing(sqlite3.connect(tmp_path / "newer" / "lab.sqlite")) as base:
        base.execute("PRAGMA user_version = 999")
    (tmp_path / "file").write_text("")
    for folder, reason in (("newer", "newer heedful"), ("file/runs", "cannot open")):
        status, _, error = heedful(
            capsys, "run", "toy-line", "--seeds", "1", "--runs", str(tmp_path / folder)
        )
        assert status == 2 and reason in error and error.count("\n") == 1


def test_report_is_one_file_without_addresses(capsys):
    heedful(capsys, "run", "toy-line", "--seeds", "3")
    status, out, _ = heedful(capsys, "report")
    page = Path("runs/latest/report.html").read_text()
    assert status == 0 and "written to runs/latest/report.html" in out
    assert "Does a steeper line rise faster?" in page and "data:image/png;base64," in page
    assert "http://" not in page and "https://" not in page and "<script" not in page
    assert "heedful run toy-line --profile full --seeds 3" in page
    assert Path("runs/latest/toy-line.svg").exists()


@pytest.mark.parametrize(
    "words", [["report"], ["compare", "a", "b"], ["generate", "--prompt", "Once"]], ids=lambda words: words[0]
)
@pytest.mark.parametrize("folder", ["runs", "rnus"])
def test_where_nothing_is_what_to_do_is_said_and_nothing_made(capsys, words, folder):
    status, out, error = heedful(capsys, *words, "--runs", folder)
    assert status == 2 and not out and error.count("\n") == 1
    assert f"{folder} holds no runs yet; make one with: heedful run padding --profile quick" in error
    assert not Path(folder).exists()


def test_report_of_a_run_without_results_says_what_to_do(capsys):
    lab.Store("runs").close()
    status, *_ = heedful(capsys, "report")
    assert status == 0 and "Run a study" in Path("runs/latest/report.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "toy-lime"], "unknown study 'toy-lime'; did you mean 'toy-line'?"),
        (["run", "toy-line", "--seeds", "0"], "seeds is 0; it takes 1 or more"),
        (["run", "toy-line", "--first-seed", "-1"], "--first-seed is -1; it must be 0 or more"),
        (["run", "toy-line", "--figure", "nope/x.png"], "--figure nope/x.png: there is no folder nope"),
        (["run", "toy-line", "--figure", "x.xyz"], "--figure x.xyz: its name must end in .png, .svg or .pdf"),
        (["run", "toy-line", "--figure", "x"], "--figure x: its name must end in .png"),
        (["run"], "heedful run: it needs STUDY (Which, or all; see heedful list)"),
        (["compare"], "it needs RUN (A run, the beginning of its name, or latest), OTHER (The other one)"),
        (
            ["run", "vit", "--set", "net=foo"],
            "one of vit, 'vit, sinusoidal', 'vit, no positions', 'vit, relu', cnn.",
        ),
        (["run", "toy-line", "--set", "slope"], "--set takes NAME=VALUE, got 'slope'"),
        (["run", "toy-line", "--set", "slop=flat"], "no setting 'slop'; did you mean 'slope'?"),
        (["run", "zero-grad", "--set", "steps=-5"], "steps is '-5'; it takes a whole number of 1 or more."),
        (["run", "zero-grad", "--set", "rate=nan"], "rate is 'nan'; it takes a finite number."),
        (["run", "cora", "--set", "epochs=0"], "epochs is '0'; it takes a whole number of 1 or more."),
        (["run", "fairytales", "--set", "dropout=1.5"], "it takes a number of 0 to 1."),
        (["run", "toy-line", "--profile", "fast"], "unknown profile 'fast'"),
        (["run", "toy-line", "--seed", "3"], "unknown option '--seed'; did you mean '--seeds'?"),
        (["compare", "a", "b"], "holds no runs yet"),
    ],
)
def test_wrong_calls(capsys, words, said):
    status, out, error = heedful(capsys, *words)
    assert status == 2 and said in error and not out
    assert not Path("runs").exists()


def test_a_pipe_that_is_closed_is_no_mistake():
    for words in ("list", "list --json"):
        command = [sys.executable, "-m", "heedful", *words.split()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            child.stdout.close()
            assert child.stderr.read() == b""
