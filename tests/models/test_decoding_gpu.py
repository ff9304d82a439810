"""Decoding with the place as a tensor: what the GPU records, run as it is on the CPU; recorded on a GPU."""

import pytest
import torch

from heedful.models import GPT
from heedful.models.decoding_cuda import Steady, steady

SHAPES = [
    {},
    {"position": "learned", "norm": "layer", "tied": True},
    {"position": "alibi", "kv_heads": 1},
    {"position": "relative"},
    {"position": "t5", "learned_scale": True},
    {"position": "none"},
]


def model(shape):
    gpt = GPT(11, layers=2, heads=2, dim=16, block=24, dropout=0.0, **shape).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return gpt


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steady_steps_are_steps(seed, shape):
    gpt, tokens = model(shape), torch.randint(11, (3, 20))
    assert steady(gpt)
    with torch.inference_mode():
        _, state = gpt.step(tokens[:, :4])
        decoder = Steady(gpt, 3, 24)
        for _ in range(2):  # it can take up another text
            decoder.begin(gpt, state)
            logits = [decoder(tokens[:, n : n + 1]) for n in range(4, 20)]
        expected = gpt(tokens)[:, 4:]
    assert torch.allclose(torch.cat(logits, 1), expected, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_recorded_text_is_the_text(seed, shape):
    """With a window that slides, and again after the weights have changed in place."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    gpt = model(shape).cuda()
    for _ in range(2):
        texts = []
        for cache in (True, False):
            prompts = [[1, 2, 3], [4, 5, 6]]
            texts.append(torch.stack(gpt.generate(prompts, 40, temperature=0, cache=cache)))
        assert torch.equal(*texts)
        with torch.no_grad():
            for parameter in gpt.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
