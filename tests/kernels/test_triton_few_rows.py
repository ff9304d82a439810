"""A decoder's kernels for few rows, against torch: interpreted without a GPU, at small sizes."""

from itertools import product

import pytest
import torch
from torch.nn import functional as F

from heedful import Rotary
from heedful.kernels import few_rows
from heedful.nn.transformer import ACTIVATIONS

pytest.importorskip("triton")


def near(found, expected, dtype, terms=0.0):
    """To the roundings of the result and, where terms nearly cancel, to those of adding them in float32."""
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dtype]
    assert found.dtype == dtype and found.shape == expected.shape
    return (found.double() - expected).norm() <= tolerance * expected.norm() + 1e-6 * terms


def plain(x, weight, bias, norm, activation, residual):
    """The formula of `few_rows.linear`, in float64."""
    x, weight = x.double(), weight.double()
    if norm is not None:
        gain, shift = (None if t is None else t.double() for t in norm[1:3])
        if norm.kind == "layer":
            x = F.layer_norm(x, x.shape[-1:], gain, shift, norm.eps)
        else:
            x = F.rms_norm(x, x.shape[-1:], gain, norm.eps)
    y = F.linear(x, weight, None if bias is None else bias.double())
    y = y if activation == "none" else ACTIVATIONS[activation](y)
    return y if residual is None else y + residual.double()


CASES = [  # rows, inputs, outputs, norm, activation, bias, residual
    (1, 40, 23, "layer", "gelu", True, True),
    (3, 33, 10, "layer without bias", "gelu_tanh", False, False),
    (5, 64, 7, "rms", "swiglu", True, False),
    (1, 1, 1, "rms without weight", "relu", True, True),
    (2, 70, 1, None, "none", True, True),
    (6, 17, 5, "layer without weight", "swiglu", False, True),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in blocks"])
def test_linear(seed, case, dtype, whole, device, monkeypatch):
    rows, inputs, outputs, kind, activation, biased, beside = case
    if not whole:  # inputs taken a few at a time
        monkeypatch.setattr(few_rows, "tiles_of", lambda rows, *_: few_rows.Tiles(2, 4, 16, 1))
    wide = 2 * outputs if activation == "swiglu" else outputs

    def some(*shape):
        return torch.randn(*shape, device=device).to(dtype)

    norm = None
    if kind is not None:
        gain = None if kind.endswith("without weight") else some(inputs)
        shift = None if kind != "layer" else some(inputs)
        norm = few_rows.Norm(kind.split()[0], gain, shift, 1e-5)
    x, weight = some(rows, inputs) + 3, some(wide, inputs)
    bias, residual = some(wide) if biased else None, some(rows, outputs) if beside else None
    found = few_rows.linear(x, weight, bias, norm=norm, activation=activation, residual=residual)
    terms = [
        x.double().abs() @ weight.double().abs().T,
        *(t.double() for t in (bias, residual) if t is not None),
    ]
    expected = plain(x, weight, bias, norm, activation, residual)
    assert near(found, expected, dtype, max(t.norm() for t in terms))


def test_every_activation_is_known():
    assert set(ACTIVATIONS) | {"none"} == set(few_rows.ACTIVATIONS)


def test_the_last_product_moves_the_place_on(seed, device):
    place = torch.tensor([6], device=device)
    for _ in range(2):
        few_rows.linear(torch.randn(5, 8, device=device), torch.randn(3, 8, device=device), place=place)
    assert place.item() == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embedding(seed, dtype, device):
    tokens, place = torch.tensor([3, 0, 9], device=device), torch.tensor([4], device=device)
    table, places = (torch.randn(n, 21, device=device).to(dtype) for n in (10, 6))
    assert torch.equal(few_rows.embedding(tokens, table, None, place), table[tokens])
    expected = table[tokens].double() + places[4].double()
    assert near(few_rows.embedding(tokens, table, places, place), expected, dtype)


ROTARY = [None, Rotary(), Rotary(interleaved=False), Rotary(dims=6), Rotary(dims=4, interleaved=False)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rotary", ROTARY, ids=["none", "pairs", "halves", "6 in pairs", "4 in halves"])
@pytest.mark.parametrize("table_rows", [0, 1, 4])
@pytest.mark.parametrize("place", [0, 9, 34])
def test_attention(seed, place, table_rows, rotary, dtype, device, monkeypatch):
    rows, heads, kv_heads, room, width = 2, 4, [4, 2, 1][place % 3], 35, 10
    monkeypatch.setattr(few_rows, "KEYS", 256)  # 16 keys at a time
    z = torch.randn(rows, heads + 2 * kv_heads, width, device=device).to(dtype)
    cache = torch.randn(rows, 2, kv_heads, room, width, device=device).to(dtype)
    cache[:, :, :, place:] = torch.nan  # what is not yet heard
    table = torch.randn(table_rows, room, device=device).to(dtype) if table_rows else None
    scale = torch.rand(heads, device=device) if table_rows == 4 else 0.3
    turns, (query, key, value) = None, z.split((heads, kv_heads, kv_heads), 1)
    if rotary is not None:
        found = rotary.turns(rotary.dims or width, room, torch.zeros(1, device=device))
        turns = few_rows.Turns(found.real.contiguous(), found.imag.contiguous(), rotary.interleaved)
        query, key = (rotary.rotate(x[:, :, None], place)[:, :, 0] for x in (query, key))

    at = torch.tensor([place], device=device)
    out = few_rows.attention(z.flatten(1), cache, at, heads, scale=scale, turns=turns, table=table)

    assert near(cache[:, 0, :, place], key.double(), dtype) and torch.equal(cache[:, 1, :, place], value)
    assert cache[:, :, :, place + 1 :].isnan().all()
    keys, values = cache[:, :, :, : place + 1].double().repeat_interleave(heads // kv_heads, 2).unbind(1)
    scores = torch.einsum("rhd,rhjd->rhj", query.double(), keys)
    scores *= scale[:, None] if isinstance(scale, torch.Tensor) else scale
    if table is not None:
        scores += table[:, : place + 1].flip(-1).double()
    expected = torch.einsum("rhj,rhjd->rhd", scores.softmax(-1), values)
    assert near(out.view(rows, heads, width), expected, dtype)


def test_attention_to_silenced_distances(seed, device):
    """A table may silence the token itself; where all are silenced nothing is heard."""
    z, cache = torch.randn(1, 3 * 8, device=device), torch.randn(1, 2, 1, 5, 8, device=device)
    table = torch.tensor([[-torch.inf, 0, -torch.inf, -torch.inf, -torch.inf]], device=device)
    for place in (3, 0):
        at = torch.tensor([place], device=device)
        out = few_rows.attention(z, cache, at, 1, scale=1.0, table=table)
        assert torch.allclose(out[0], cache[0, 1, 0, 2] if place else torch.zeros_like(out[0]))


def test_shapes_fill_the_gpu():
    """GPT-mini's products have a program for every multiprocessor, and long inputs few blocks."""
    for outputs, inputs in [(1152, 384), (384, 384), (1536, 384), (384, 1536)]:
        tiles = few_rows.tiles_of(1, outputs, inputs, False)
        assert -(-outputs // tiles.outputs) >= few_rows.PROGRAMS and tiles.inputs >= inputs
    for rows, outputs, gated in product(range(1, 17), (1, 87, 5000), (False, True)):
        tiles = few_rows.tiles_of(rows, outputs, 4096, gated)
        sums = tiles.rows * tiles.outputs * tiles.inputs * (1 + gated) // (32 * tiles.warps)
        assert all(n & (n - 1) == 0 for n in tiles) and sums <= 64
