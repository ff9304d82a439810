"""What the README says to type works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.S | re.M)
SHELL = [line for language, block in BLOCKS if not language for line in block.splitlines()]
# Minutes each, or about a file of the reader's: that they exist with these options is checked, no more.
LONG = ("calibrate", "bench", "run", "claims", "doctor", "generate", "attention", "segment", "classify")


@pytest.mark.parametrize("code", [block for language, block in BLOCKS if language == "python"])
def test_python_blocks_run(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for what a reader would save
    exec(compile(code, "README.md", "exec"), {})
    assert ("factored" if "explain(" in code else "parameters") in capsys.readouterr().out


@pytest.mark.parametrize("line", [line for line in SHELL if line.startswith("heedful ")])
def test_commands_run(line, tmp_path):
    words = shlex.split(line, comments=True)[1:]
    options = {word for word in words if word.startswith("--") and len(word) > 2}
    words = [words[0], "--help"] if words[0] in LONG else words
    done = subprocess.run(
        [sys.executable, "-m", "heedful", *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if words[-1] == "--help":
        assert [option for option in options - {"--lr"} if option not in done.stdout] == []


@pytest.mark.parametrize("target", ["run", "test"])
def test_both_commands_are_in_the_readme_and_the_makefile(target):
    assert any(line.startswith(f"make {target} ") for line in SHELL)
    assert re.search(rf"^{target}:", MAKEFILE, re.M)


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link
