"""`heedful claims` as typed, its pages, and its part of the report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heedful import claims, cli
from heedful.claims import page

DOCS = Path(__file__).resolve().parents[2] / "docs"
KEPT = DOCS / "results/2026-11-16-claims.json"
OWN = """
from heedful.claims import claim, same

@claim("X1", "my notes", "The mean of a softmax is one over its length.")
def softmax_mean(draw):
    x = draw.normal(draw.integer(1, 9), draw.integer(1, 9))
    yield same("mean of each row", x.softmax(-1).mean(-1), 1 / x.shape[-1] + 0 * x[:, 0])

@claim("X2", "my notes", "A softmax is all ones.", corrected="It sums to one.")
def softmax_ones(draw):
    x = draw.normal(3, 4).softmax(-1)
    yield same("entries", x, 0 * x + 1)
    yield same("sums", x.sum(-1), 0 * x[:, 0] + 1, role="corrected")
"""


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def heedful(capsys, *words):
    status = cli.main(["claims", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_scoreboard(capsys):
    status, out, _ = heedful(capsys, "B4.1", "E1.4", "--seeds", "2")
    assert status == 0
    assert "B4.1   holds" in out and "E1.4   fails" in out and "2 claims: 1 hold, 1 fail." in out


def test_small_letters_will_do(capsys):
    status, out, _ = heedful(capsys, "b4.1", "B4.1", "--seeds", "1")
    assert status == 0 and out.count("B4.1") == 1 and "1 claim: 1 holds." in out
    status, _, error = heedful(capsys, "c2.66")
    assert status == 2 and "C2 has C2.1, " in error and "A1" not in error and error.count("\n") == 1
    assert "Ids begin with A1, " in heedful(capsys, "Z9.1")[2]


def test_json_has_the_fields(capsys):
    status, out, _ = heedful(capsys, "C2.6", "--json", "--seeds", "1")
    [found] = json.loads(out)
    assert status == 0
    assert list(found) == ["id", "document", "statement", "stated", "verdict", "evidence", "corrected"]
    assert found["verdict"] == "holds, corrected" and found["evidence"][0]["holds"] is True


def test_one_is_explained(capsys):
    status, out, _ = heedful(capsys, "D1.3", "--explain", "--seeds", "1")
    assert status == 0
    for part in (
        "stated: (1/16)^{n−1}",
        "verdict: holds",
        "✓ σ_max",
        "figure: runs/claims/D1.3.png",
        "def shrinking",
    ):
        assert part in out
    assert Path("runs/claims/D1.3.png").stat().st_size > 5000


def test_one_document(capsys):
    status, out, _ = heedful(capsys, "B4.1", "E1.4", "--document", "E", "--json", "--seeds", "1")
    assert status == 0 and [entry["id"] for entry in json.loads(out)] == ["E1.4"]
    assert [id[0] for id in claims.claims("D")] == ["D"] * len(claims.claims("D"))
    assert set(claims.claims("NYU")) == {id for id in claims.claims() if id.startswith("E")}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["C2.66"], "did you mean 'C2.6'?"),
        (["--document", "Q"], "there is no document 'Q'"),
        (["B4.1", "--document", "A"], "no claim named is of document A"),
        (["--seeds", "0"], "--seeds is 0"),
        (["B4.1", "--docs", "pages"], "--docs writes pages of all claims"),
        (["--module", "nowhere.py"], "nowhere.py: no such file"),
        (["--explian"], "did you mean"),
    ],
)
def test_wrong_calls_are_told(capsys, words, says):
    status, _, error = heedful(capsys, *words)
    assert status == 2 and says in error


def test_claims_of_ones_own(capsys):
    Path("my_claims.py").write_text(OWN, encoding="utf-8")
    status, out, _ = heedful(capsys, "--module", "my_claims.py", "--json")
    found = {entry["id"]: entry for entry in json.loads(out)}
    assert status == 0 and set(found) == {"X1", "X2"}
    assert found["X1"]["verdict"] == "holds"
    assert found["X2"]["verdict"] == "fails" and found["X2"]["corrected"] == "It sums to one."
    Path("nothing.py").write_text("x = 1\n")
    assert heedful(capsys, "--module", "nothing.py")[0] == 2


def test_what_a_file_asks_and_prints(tmp_path, monkeypatch):
    """The sample of the page on teaching, in a fresh process: ours are not its own, and it is run once."""
    text = (DOCS / "teaching.md").read_text(encoding="utf-8")
    (sample,) = [code for code in re.findall(r"```python\n(.*?)```", text, re.S) if '@claim("X1"' in code]
    more = "".join(f'claim("X{n}", "notes", "So.", once=True)(softmax_mean)\n' for n in range(2, 9))
    Path("my_claims.py").write_text(sample + more, encoding="utf-8")
    command = [sys.executable, "-m", "heedful", "claims", "--module", "my_claims.py", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "8 claims: 8 hold." in done.stdout and done.stdout.startswith("holds\nfails\nclaim "), done.stdout
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=120)
    assert len(json.loads(done.stdout)) == 8 and "holds\nfails\n" in done.stderr


def test_a_claim_that_raises_is_told(capsys):
    Path("raises.py").write_text(
        "from heedful.claims import claim\n\n"
        "@claim('X9', 'notes', 'Nothing.')\ndef f(draw):\n    yield 1 / 0\n"
    )
    status, out, _ = heedful(capsys, "--module", "raises.py")
    assert status == 1 and "not measured" in out and "ZeroDivisionError" in out


def test_processes_say_what_one_says(capsys):
    ids = ["A2.3", "B4.1", "D1.1", "D1.2", "E1.3", "E1.4", "E1.11", "C2.6"]
    one, two = (claims.check_all(ids, seeds=1, workers=workers) for workers in (1, 2))
    assert [v.verdict for v in one] == [v.verdict for v in two]
    assert [v.id for v in two] == ids


def test_the_report_has_a_section(capsys):
    heedful(capsys, "D1.3", "E1.4", "--seeds", "1")
    assert cli.main(["report"]) == 0
    text = Path("runs/latest/report.html").read_text(encoding="utf-8")
    assert "Claims: the textbook, executed" in text and "softmax(QKᵀ/√d)V" in text
    assert text.count("data:image/png;base64") == 1
    assert page.section(Path("nowhere")) == ""


def test_the_pages_are_what_the_registry_gives():
    """`heedful claims --docs docs --seeds 20` writes them anew."""
    assert (DOCS / "claims.md").read_text(encoding="utf-8") == page.page(page.read(KEPT))
    ours = {id: entry for id, entry in claims.claims().items() if not id.startswith("X")}
    assert (DOCS / "map.md").read_text(encoding="utf-8") == page.map_page(ours)


def test_the_pages_example_runs(tmp_path):
    code = page.ABOUT.split("```python\n")[1].split("```")[0]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    [id] = claims.load_module(tmp_path / "mine.py")
    assert claims.check(id).verdict == "holds"
