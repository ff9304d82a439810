"""Decoding with the place as a tensor: what the GPU records, run as it is on the CPU; recorded on a GPU."""

import copy
from weakref import ref

import pytest
import torch
from torch import nn

from heedful import Alibi, Rotary, Softmax
from heedful.kernels import few_rows, sparse_operators
from heedful.models import GPT
from heedful.models.decoding_cuda import Steady, steady, turn_of
from heedful.models.decoding_few_rows import FewRows, few_rows_decoder

SHAPES = [
    {},
    {"position": "learned", "norm": "layer", "tied": True},
    {"position": "alibi", "kv_heads": 1},
    {"position": "relative"},
    {"position": "t5", "learned_scale": True},
    {"position": "none"},
    {"activation": "swiglu", "bias": False, "kv_heads": 1},
    {"position": "sinusoidal", "activation": "relu", "norm": "layer"},
    {"activation": "gelu", "hidden": 37},
]


def model(shape):
    gpt = GPT(11, layers=2, heads=2, dim=16, block=24, dropout=0.0, **shape).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return gpt


@pytest.fixture
def interpreted(monkeypatch):
    """The kernels of few rows where there is no GPU to compile them for: few programs, for each is slow."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("the kernels are compiled here")
    monkeypatch.setattr(few_rows, "tiles_of", lambda *sizes: few_rows.Tiles(4, 64, 32, 1))


@pytest.fixture(params=[Steady, FewRows])
def kind(request):
    if request.param is FewRows:
        request.getfixturevalue("interpreted")
    return request.param


def logits_of(decoder, gpt, tokens, known=4):
    """What a decoder makes of tokens, one by one, after the first few."""
    _, state = gpt.step(tokens[:, :known])
    decoder.begin(gpt, state)
    return torch.cat([decoder(tokens[:, n : n + 1]) for n in range(known, tokens.shape[1])], 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steady_steps_are_steps(seed, shape, kind):
    gpt, tokens = model(shape), torch.randint(11, (3, 7))
    assert steady(gpt)
    with torch.inference_mode():
        decoder = kind(gpt, 3, 24)
        for _ in range(2):  # it can take up another text, after the weights have changed where they lie
            assert torch.allclose(logits_of(decoder, gpt, tokens), gpt(tokens)[:, 4:], atol=1e-4)
            for parameter in gpt.parameters():
                parameter.mul_(0.9)


def test_no_token_beyond_the_room(seed, kind):
    gpt, tokens = model({}), torch.randint(11, (1, 25))
    with torch.inference_mode():
        decoder = kind(gpt, 1, 24)
        logits_of(decoder, gpt, tokens[:, :24], known=23)
        with pytest.raises(IndexError, match="room=24"):
            decoder(tokens[:, 24:])


def test_few_rows_of_half_precision(seed, interpreted):
    """Off by its roundings, some 1 % of the logits, as the ordinary decoder is."""
    gpt, tokens = model({"activation": "swiglu"}), torch.randint(11, (2, 6))
    half = copy.deepcopy(gpt).bfloat16()
    with torch.inference_mode():
        for parameter, rounded in zip(gpt.parameters(), half.parameters(), strict=True):
            parameter.copy_(rounded)
        expected = gpt(tokens)[:, 4:]
        found = logits_of(FewRows(half, 2, 24), half, tokens)
    assert found.dtype == torch.bfloat16
    assert (found - expected).norm() <= 0.06 * expected.norm()


def test_few_rows_with_torch_attending(seed, interpreted, monkeypatch):
    """Long rooms are attended by torch, between the same products."""
    monkeypatch.setattr(few_rows, "MOST_KEYS", 16)
    for shape in ({}, {"position": "alibi"}):
        gpt, tokens = model(shape), torch.randint(11, (2, 6))
        with torch.inference_mode():
            decoder = FewRows(gpt, 2, 24)
            assert decoder.masked
            assert torch.allclose(logits_of(decoder, gpt, tokens), gpt(tokens)[:, 4:], atol=1e-4)


def test_a_text_that_slides_gives_its_turn_back(seed, monkeypatch):
    """Else it would go on without the recording, which it holds itself."""
    gpt, before, alive = model({}), GPT.decoder, []

    def decoder(self, *rest):
        alive.append([one() is not None for one in held])
        made = before(self, *rest)
        held.append(ref(made))
        return made

    held: list = []
    monkeypatch.setattr(GPT, "decoder", decoder)
    gpt.generate([1, 2, 3], 60, temperature=0)
    assert len(alive) > 2 and not any(map(any, alive))


def test_who_decodes_few_rows(seed, monkeypatch):
    pytest.importorskip("triton")
    gpt = model({})
    if not torch.cuda.is_available():
        assert few_rows_decoder(gpt, 1, 24) is None
    monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: True)
    assert few_rows_decoder(gpt, 1, 24) is not None
    assert few_rows_decoder(gpt, few_rows.MOST_ROWS + 1, 24) is None
    assert few_rows_decoder(copy.deepcopy(gpt).double(), 1, 24) is None
    odd = copy.deepcopy(gpt)
    odd.norm = nn.RMSNorm(16)  # its ε is torch's to choose
    assert few_rows_decoder(odd, 1, 24) is None
    odd = copy.deepcopy(gpt)
    odd.head.weight = nn.Parameter(torch.randn(16, 11).T)
    assert few_rows_decoder(odd, 1, 24) is None


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 5, 20])
def test_recorded_text_is_the_text(seed, shape, rows):
    """With a window that slides, and again after the weights have changed in place."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    gpt = model(shape).cuda()
    prompts = torch.randint(11, (rows, 3)).tolist()
    for _ in range(2):
        texts = [
            torch.stack(gpt.generate(prompts, 40, temperature=0, cache=cache)) for cache in (True, False)
        ]
        assert torch.equal(*texts)
        with torch.no_grad():
            for parameter in gpt.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)


WIDE = [
    {"position": "learned", "norm": "layer", "tied": True},
    {"activation": "swiglu", "kv_heads": 2, "bias": False},
    {"position": "alibi", "activation": "gelu", "kv_heads": 3},
    {"position": "t5", "learned_scale": True},
]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", WIDE, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_few_rows_of_a_usual_width(seed, shape, rows):
    """Blocks of several programs: the recorded text is the CPU's, or parts from it at a tie."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    gpt = GPT(87, layers=3, heads=6, dim=384, dropout=0.0, **shape).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    there = copy.deepcopy(gpt).cuda()
    prompts = torch.randint(87, (rows, 4))
    for change in (1.0, 0.9):
        with torch.no_grad():
            for both in zip(gpt.parameters(), there.parameters(), strict=True):
                for parameter in both:
                    parameter.mul_(change)
        text = torch.stack(there.generate(prompts, 100, temperature=0)).cpu()
        assert few_rows_decoder(there, rows, 128) is not None
        with torch.inference_mode():
            logits = gpt(text[:, :-1])[:, 3:]
        chosen = logits.gather(-1, text[:, 4:, None])[..., 0]
        assert (logits.amax(-1) - chosen).max() <= 1e-3 * logits.std()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", WIDE[:3], ids=str)
def test_few_rows_of_half_precision_on_a_gpu(seed, shape, dtype):
    """Near the same weights in float32, token for token."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    half = GPT(87, layers=3, heads=6, dim=384, dropout=0.0, **shape).eval().to("cuda", dtype)
    gpt, tokens = copy.deepcopy(half).float(), torch.randint(87, (2, 100), device="cuda")
    with torch.inference_mode():
        expected = gpt(tokens)[:, 4:]
        decoder = few_rows_decoder(half, 2, 128)
        assert decoder is not None
        found = logits_of(decoder, half, tokens).float()
    assert (found - expected).norm() <= 3e-2 * expected.norm()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "position", [Rotary(interleaved=False, dims=10), Rotary(dims=14), Alibi(torch.tensor(0.3))], ids=repr
)
def test_few_rows_with_other_positions(seed, position):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    gpt = GPT(11, layers=2, heads=3, dim=60, position="none", dropout=0.0).eval().cuda()
    for block in gpt.blocks:
        block.attention.position = position
        block.attention._similarity = Softmax(torch.tensor([0.2, 0.3, 0.4], device="cuda"))
    tokens = torch.randint(11, (2, 100), device="cuda")
    with torch.inference_mode():
        found = logits_of(few_rows_decoder(gpt, 2, 128), gpt, tokens)
        assert torch.allclose(found, gpt(tokens)[:, 4:], atol=1e-3)


@pytest.mark.gpu
def test_a_text_that_fills_the_room(seed):
    """What is recorded is warmed up at the beginning of the room, not behind its end."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    gpt = model({"position": "learned"}).cuda()
    prompt = torch.randint(11, (24,)).tolist()
    texts = [gpt.generate(prompt, 30, temperature=0, cache=cache) for cache in (True, False)]
    assert torch.equal(*texts)


def test_a_recording_serves_one_text_at_a_time():
    decoder = Steady(model({}), 1, 24)
    first = turn_of(decoder)
    assert first is not None and turn_of(decoder) is None
    del first
    assert turn_of(decoder) is not None


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_texts_at_once_do_not_mix(seed, shape):
    """The second goes without a recording; both slide."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    gpt, prompts = model(shape).cuda(), torch.randint(11, (2, 4)).tolist()
    alone = [[draw.token for draw in gpt.stream(prompt, 40, temperature=0)] for prompt in prompts]
    streams = [gpt.stream(prompt, 40, temperature=0) for prompt in prompts]
    together = zip(*([draw.token for draw in draws] for draws in zip(*streams, strict=True)), strict=True)
    assert [list(text) for text in together] == alone
