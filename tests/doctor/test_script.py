"""A stranger's script: run unchanged, always reported on, patched and proved; exit codes 0, 1, 2."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.doctor import Report
from heedful.doctor.cases import CASES
from heedful.doctor.source import Source, apply

GOOD = """
import sys
import torch
from torch import nn

rate = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
x = torch.randn(64, 4)
for step in range(500):
    loss = nn.functional.mse_loss(model(x), x[:, :1])
    {clear}
    loss.backward()
    optimizer.step()
    {then}
print("done", step, rate, __name__, __file__)
"""


def doctor(*arguments: str, cwd: Path | None = None):
    command = [sys.executable, "-m", "heedful", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600)


def script(folder: Path, clear="optimizer.zero_grad()", then="pass") -> str:
    path = folder / "train.py"
    path.write_text(GOOD.format(clear=clear, then=then))
    return str(path)


def test_a_healthy_script_runs_as_it_is(tmp_path):
    done = doctor(script(tmp_path), "--json", "--", "0.05", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["healthy"] and found["steps"] == 500 and found["findings"] == []
    assert Report.from_dict(found).to_dict() == found
    assert f"done 499 0.05 __main__ {tmp_path / 'train.py'}" in done.stderr


def test_a_sick_one_is_patched(tmp_path):
    page = tmp_path / "report.html"
    sick = script(tmp_path, clear="pass")
    done = doctor(sick, "--steps", "30", "--no-prove", "--html", str(page), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "done" not in done.stdout  # it was stopped
    for words in (
        "Gradients are not cleared",
        "train.py:13",
        "+    optimizer.zero_grad()",
    ):
        assert words in done.stdout
    text = page.read_text(encoding="utf-8")
    assert "Gradients are not cleared" in text and "http" not in text.replace("http-equiv", "")


def test_a_script_that_raises_gets_its_report(tmp_path):
    raising = script(tmp_path, clear="pass", then="if step == 20: raise KeyError('lost')")
    done = doctor(raising, "--no-prove", cwd=tmp_path)
    assert done.returncode == 1
    assert "the script raised KeyError: 'lost'" in done.stdout and "gradients-not-cleared" in done.stdout


@pytest.mark.parametrize(
    "after, kept",
    [
        (Report(steps=9, losses=[2.0, 0.5]), True),
        (Report(steps=9, losses=[2.0, 7.0]), True),  # another scale, or a slower start
        (Report(steps=9, losses=[2.0, -4e29]), False),
        (Report(steps=9, losses=[2.0, float("nan")]), False),
        (Report(steps=9, losses=[2.0], raised="RuntimeError: no"), False),
        (None, False),  # the finding is still there
    ],
)
def test_a_patch_that_does_not_help_is_withdrawn(tmp_path, monkeypatch, after, kept):
    from heedful.doctor import script as scripts
    from heedful.doctor.findings import finding

    patch = "--- a\n+++ b\n@@ -1,1 +1,1 @@\n-a = 1\n+a = 2"
    sick = Report([finding("gradients-not-cleared", 2.0, "…", patch=patch)], steps=9, losses=[2.0, 1.0])
    runs = []

    def child(path, arguments, steps, tier, text, *_):
        runs.append(text)
        return sick if text is None or after is None else after

    monkeypatch.setattr(scripts, "_child", child)
    (tmp_path / "train.py").write_text("a = 1\n")
    (found,) = scripts.diagnose(tmp_path / "train.py").findings
    assert runs == [None, "a = 2\n"]
    assert bool(found.patch) == bool(found.proof) == kept


def test_a_healthy_script_that_raises_is_2(monkeypatch, capsys):
    from heedful import cli

    monkeypatch.setattr(
        "heedful.doctor.script.diagnose", lambda *a, **k: Report(steps=20, raised="KeyError: 'lost'")
    )
    assert cli.main(["doctor", "train.py"]) == 2
    said = capsys.readouterr().out
    assert (
        "it raised KeyError, and no cause was seen" in said and "the script raised KeyError: 'lost'" in said
    )


SLOW = GOOD.replace("{clear}", "print(step, flush=True) or time.sleep(0.05)").replace("{then}", "pass")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_git_takes_the_patch(tmp_path, end, last):
    text = GOOD.partition("    {then}")[0].format(clear="pass")
    text = text if last else text.rstrip("\n")
    (tmp_path / "train.py").write_text(text, newline=end)
    done = doctor("train.py", "--json", "--no-prove", "--steps", "20", cwd=tmp_path)
    (tmp_path / "the.patch").write_text(json.loads(done.stdout)["findings"][0]["patch"], newline="")
    git = subprocess.run(["git", "apply", "the.patch"], cwd=tmp_path, capture_output=True, text=True)
    assert git.returncode == 0, git.stderr
    patched = (tmp_path / "train.py").read_bytes().decode()
    assert f"optimizer.zero_grad(){end}" in patched
    assert patched.replace(end, "").count("\n") == 0 and patched.endswith(end) is last


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_end_from_outside(tmp_path, how):
    """Ctrl-C is told to parent and script alike, and there is a report; nothing is left behind either way."""
    (tmp_path / "train.py").write_text("import time\n" + SLOW)
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [sys.executable, "-m", "heedful", "doctor", "train.py"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    assert any(line == "12\n" for line in process.stdout)
    if how == signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    said, _ = process.communicate(timeout=60)  # the script holds the pipe: it ends with it
    assert list(folder.glob("heedful-*")) == []
    if how == signal.SIGINT:
        assert process.returncode == 1
        assert "it was interrupted" in said and "gradients-not-cleared" in said and "proof" not in said
    else:
        assert process.returncode == 128 + signal.SIGTERM and "499" not in said


def test_a_finding_of_the_script_s_own_is_told(tmp_path):
    """What docs/teaching.md shows, run by the doctor."""
    page = (Path(__file__).parents[2] / "docs" / "teaching.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M) if "loss-negative" in b]
    (tmp_path / "train.py").write_text(block)
    done = doctor("train.py", "--json", "--no-prove", cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    (found,) = [entry for entry in json.loads(done.stdout)["findings"] if entry["name"] == "loss-negative"]
    assert found["kind"]["title"] == "The loss is negative"


BY_HAND = "import torch\nw = torch.ones(2, requires_grad=True)\nw.sum().backward()"


@pytest.mark.parametrize("text", ["", "{}", BY_HAND])
def test_what_cannot_be_judged_is_not_called_healthy(tmp_path, text):
    (tmp_path / "train.py").write_text(text)
    done = doctor("train.py", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "train.py: nothing could be judged" in done.stdout and "no optimizer step was seen" in done.stdout


@pytest.mark.parametrize(
    "text, words",
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("def (", "invalid syntax"),
        (None, "there is no script"),
    ],
)
def test_what_cannot_be_run_is_2(tmp_path, text, words):
    path = tmp_path / "broken.py"
    if text is not None:
        path.write_text(text)
    done = doctor(str(path), cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("heedful doctor: ")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((), "which script?"),
        (("--case", "dept"), "did you mean 'depth'?"),
        (("x.py", "--tier", "norml"), "did you mean 'normal'?"),
        (("x.py", "--steps", "0"), "--steps is 0"),
        (
            ("x.py", "--lr", "0.1"),
            "what is the script's goes behind --, as in: heedful doctor train.py -- --lr",
        ),
        (("x.py", "--html", "/nowhere/x.html"), "there is no folder '/nowhere'"),
        (("--self-test", "--corpus", "/nowhere"), "there is no corpus"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, words):
    from heedful import cli

    assert cli.main(["doctor", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "case, finding",
    [
        ("diverging", "gradients-not-cleared"),
        ("accumulation", "batchnorm-under-accumulation"),
        ("depth", "exploding-gradients"),
    ],
)
def test_the_documents_cases(case, finding):
    done = doctor("--case", case, "--json")
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)["findings"]
    assert found["name"] == finding
    assert found["patch"] and "with the patch it is gone" in found["proof"]
    compile(apply(CASES[case].read_text(), found["patch"]), "patched", "exec")
    if case == "depth":
        assert "with skips around every two layers" in found["proof"]


DISTRIBUTED = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for _ in range(12):
    x = torch.randn(16, 6)
    loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_under_torchrun_one_process_tells(tmp_path):
    """Two processes, each watched by itself; the first has the word."""
    (tmp_path / "train.py").write_text(DISTRIBUTED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "heedful", "doctor", "train.py", "--no-prove", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert [entry["name"] for entry in found["findings"]] == ["gradients-not-cleared"] and found[
        "steps"
    ] == 12
    assert "+    optimizer.zero_grad()" in found["findings"][0]["patch"]


TEXT = """for x in data:
    optimizer.step()
    loss = f(x)
    loss.backward()
    if x:
        a = 1; b = 2
"""


def test_edits():
    source = Source("train.py", TEXT)
    assert source.receiver(2, "step") == "optimizer"
    moved = source.move_after(2, 4)
    assert moved.splitlines()[1:4] == ["    loss = f(x)", "    loss.backward()", "    optimizer.step()"]
    assert apply(TEXT, source.diff(moved)) == moved
    back = Source("train.py", moved).move_before(4, 2)
    assert back == TEXT
    assert source.insert_before(4, "optimizer.zero_grad()").splitlines()[3] == "    optimizer.zero_grad()"
    assert source.move_after(6, 2) == "" and source.move_after(5, 2) == ""  # not a line of its own
    behind = Source("train.py", "a = 1\nb = [\n    2,\n]\nc = 3\n")
    assert behind.move_behind(2, behind.tree.body[2]) == "a = 1\nc = 3\nb = [\n    2,\n]\n"
    block = Source("train.py", "with f():\n    a = 1\n\n    b = 2\nc = 3\n")
    assert block.without_block(block.tree.body[0]) == "a = 1\n\nb = 2\nc = 3\n"
    with pytest.raises(ValueError, match="does not fit"):
        apply(TEXT.replace("f(x)", "g(x)"), source.diff(moved))
