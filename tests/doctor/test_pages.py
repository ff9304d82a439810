"""Every finding has its page, written from the registry; what the doctor's page says to type works."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from heedful.doctor import KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "findings"
MAKE = runpy.run_path(str(FOLDER / "__main__.py"), run_name="pages")


@pytest.mark.parametrize("name", KINDS)
def test_a_page_and_a_picture_are_what_the_registry_says(name):
    """`python docs/findings` writes them anew."""
    assert MAKE["page"](KINDS[name]) == (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    rows = MAKE["data"]().get(name, {})
    assert MAKE["picture"](KINDS[name], rows) == (FOLDER / f"{name}.svg").read_text(encoding="utf-8")


def test_no_page_is_left_over():
    assert (
        {path.stem for path in FOLDER.glob("*.md")}
        == {path.stem for path in FOLDER.glob("*.svg")}
        == set(KINDS)
    )
    text = (DOCS / "doctor.md").read_text(encoding="utf-8")
    assert [name for name in KINDS if f"findings/{name}.md" not in text] == []


def test_a_kind_says_everything():
    for kind in KINDS.values():
        assert all(
            len(text) > 3
            for text in (kind.title, kind.symptom, kind.measures, kind.reason, kind.cause, kind.fix)
        )
        assert kind.healthy and set(kind.explains) <= set(KINDS) - {kind.name}


def test_the_page_s_python_runs(capsys, seed):
    text = (DOCS / "doctor.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    exec(compile(block, "doctor.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    for promised in re.findall(r"# → (.*)$", block, re.M):
        assert promised in printed


def test_light_to_import():
    """What waits for the script's process loads no torch."""
    import subprocess
    import sys

    code = "import heedful.doctor.script, heedful.doctor.report, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
