"""What torch.export makes of GPT: the whole for any length, and a step whose state never changes its size."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim, export

from heedful.models import GPT, GPTStep

V, ROOM = 11, 9


def gpt(**changes):
    settings = {"layers": 1, "heads": 4, "dim": 16, "block": 16, "dropout": 0.1, **changes}
    model = GPT(V, **settings).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


WHOLE = [
    {"layers": 2},
    {"position": "learned", "norm": "layer", "tied": True},
    {"position": "alibi", "similarity": "elu"},
    {"position": "t5", "kv_heads": 2},
    {"position": "relative"},
    {"position": "sinusoidal", "similarity": "polynomial(degree=2)"},
]
STEPS = [
    *WHOLE[:5],
    {"position": "sinusoidal", "similarity": "polynomial(degree=2)"},
    {"position": "rotary", "similarity": "elu", "kv_heads": 1},
    {"position": "rotary", "similarity": "polynomial(degree=4)"},
    {"position": "rotary", "similarity": "random(12)"},
    {"position": "alibi", "neighbors": "causal & window(3)"},
    {"position": "none", "learned_scale": True},
]


@pytest.mark.parametrize("changes", WHOLE, ids=str)
def test_the_whole_for_any_number_and_length_of_texts(changes, seed):
    model, tokens = gpt(**changes), torch.randint(V, (2, 7))
    shapes = {"tokens": {0: Dim("rows", max=64), 1: Dim("length", min=2, max=16)}}
    program = export(model, (tokens,), dynamic_shapes=shapes).module()
    for rows, length in ((2, 7), (1, 2), (5, 16)):
        tokens = torch.randint(V, (rows, length))
        torch.testing.assert_close(program(tokens), model(tokens), rtol=1e-9, atol=1e-9)


def test_a_window_is_exported_for_one_length(seed):
    model, tokens = gpt(neighbors="causal & window(3)"), torch.randint(V, (2, 7))
    torch.testing.assert_close(export(model, (tokens,)).module()(tokens), model(tokens), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("changes", STEPS, ids=str)
def test_steps(changes, seed):
    model, tokens = gpt(**changes), torch.randint(V, (3, ROOM))
    step = GPTStep(model, ROOM).eval()
    state = step.initial_state(rows=3)
    program = export(step, (tokens[:, :1], torch.tensor(0), state)).module()
    whole, eager = model(tokens), state
    with torch.no_grad():
        for t in range(ROOM):
            token, place = tokens[:, t : t + 1], torch.tensor(t)
            sizes = [part.shape for part in state]
            logits, state = program(token, place, state)
            torch.testing.assert_close(logits, whole[:, t : t + 1], rtol=1e-8, atol=1e-8)
            assert [part.shape for part in state] == sizes
            again, eager = step(token, place, eager)
            torch.testing.assert_close(again, logits, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "changes, room, words",
    [
        ({"similarity": "argmax"}, 8, "not for Argmax"),
        ({"similarity": "elu", "position": "t5"}, 8, "not for EluKernel"),
        ({"similarity": "elu", "neighbors": "causal & window(3)"}, 8, "not for EluKernel"),
        ({"position": "learned"}, 17, "room=17.*learned 16 positions"),
    ],
)
def test_what_cannot_be_exported_says_so(changes, room, words):
    with pytest.raises(ValueError, match=words):
        GPTStep(gpt(**changes), room)


@pytest.mark.parametrize("changes", [{}, {"similarity": "elu", "position": "alibi"}], ids=str)
def test_onnx(changes, seed, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model, tokens = gpt(**changes).float(), torch.randint(V, (1, ROOM))
    step = GPTStep(model, ROOM).eval()
    state = step.initial_state(rows=1)
    file = str(tmp_path / "step.onnx")
    torch.onnx.export(step, (tokens[:, :1], torch.tensor(0), state), file, dynamo=True, verbose=False)
    session = runtime.InferenceSession(file)
    names, wanted = [given.name for given in session.get_inputs()], model(tokens)
    carried = [part.numpy() for part in state]
    for t in range(ROOM):
        given = [tokens[:, t : t + 1].numpy(), torch.tensor(t).numpy(), *carried]
        logits, *carried = session.run(None, dict(zip(names, given, strict=True)))
        torch.testing.assert_close(torch.tensor(logits), wanted[:, t : t + 1].detach(), rtol=1e-4, atol=1e-4)
