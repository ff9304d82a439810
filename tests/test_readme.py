"""What the README says to type works; commands and links of all pages are tested in test_docs.py."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.S | re.M)
SHELL = [line for language, block in BLOCKS if not language for line in block.splitlines()]


@pytest.mark.parametrize("code", [block for language, block in BLOCKS if language == "python"])
def test_python_blocks_run(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for what a reader would save
    exec(compile(code, "README.md", "exec"), {})
    assert ("factored" if "explain(" in code else "parameters") in capsys.readouterr().out


@pytest.mark.parametrize("target", ["run", "test"])
def test_both_commands_are_in_the_readme_and_the_makefile(target):
    assert any(line.startswith(f"make {target} ") for line in SHELL)
    assert re.search(rf"^{target}:", MAKEFILE, re.M)
