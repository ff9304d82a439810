"""What the study of citation graphs keeps: the model that gave the number it reports."""

from __future__ import annotations

import pytest
import torch

from heedful import Graph, data, lab


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_the_first_seeds_model_is_kept_as_it_was_measured(tmp_path, backend):
    chosen = {"dataset": "citations", "model": "gat", "epochs": 6}
    result = lab.run("cora", profile="quick", seeds=2, settings=chosen, store=tmp_path, backend=backend)
    assert not result.failures
    found = lab.kept(result.run.id, store=str(tmp_path), use="nodes")
    assert found.trial.seed == 0 and found.notes["dataset"] == "citations"
    assert [trial.seed for trial in result.trials if (trial.folder / "model.safetensors").exists()] == [0]
    sets = data.load("citations").row_normalized()
    with torch.inference_mode():
        logits = found.model.eval()(Graph.from_dense(sets.features), sets.graph)
    right = (logits.argmax(-1) == sets.labels)[sets.test].float().mean()
    assert 100 * right == pytest.approx(found.trial.results["test"], abs=0.11)  # one paper of a thousand
