"""What docs/training.md says to type works, from its top to its end."""

import re
from pathlib import Path

import torch

PAGE = (Path(__file__).parents[2] / "docs/training.md").read_text()


def test_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before, names = torch.get_rng_state(), {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M):
        exec(compile(code, "docs/training.md", "exec"), names)
    torch.set_rng_state(before)
    shown = capsys.readouterr().out
    assert "History: " in shown and "seed 7: " in shown and "→" in shown
    assert names["history"].best.row["val_accuracy"] > 0.6
    assert len(names["outcomes"].column("val_accuracy")) == 8


def test_every_public_name_is_on_the_page():
    import heedful.training

    told = {"Best", "History", "Outcome", "Outcomes", "Training"}  # what is returned or handed to callbacks
    assert [name for name in heedful.training.__all__ if name not in told and f"{name}" not in PAGE] == []
