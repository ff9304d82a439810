"""What docs/data.md says to type works, and its tables name every set."""

from __future__ import annotations

import re
from pathlib import Path

from heedful import cli, data

PAGE = (Path(__file__).parents[2] / "docs/data.md").read_text()


def test_python_runs(real):
    real("cora"), real("mnist")  # or skip: a test must not download
    for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M):
        exec(compile(code, "docs/data.md", "exec"), {})


def test_commands_run(real, capsys):
    real("cora"), real("mnist")
    for line in re.findall(r"^heedful (data .*?) *(?:#.*)?$", PAGE, re.M):
        assert cli.main(line.split()) == 0, line


def test_every_set_is_on_the_page():
    assert [name for name in data.names() if f"`{name}`" not in PAGE] == []
