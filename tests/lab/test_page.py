"""What docs/lab.md says to type works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/lab.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)


@pytest.mark.parametrize("code", BLOCKS)
def test_python_blocks_run(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/lab.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    out = capsys.readouterr().out
    assert ("mean ± standard deviation" if "lab.run" in code else "torch.Size([2, 75, 50])") in out
