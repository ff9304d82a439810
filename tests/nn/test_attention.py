"""Attention: torch's multi-head attention with equal weights; decoded in every way; told when wrong."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from heedful import (
    Additive,
    Alibi,
    Causal,
    EluKernel,
    FeatureMap,
    Mask,
    Polynomial,
    Relative,
    Rotary,
    ScoreFunction,
    Segments,
    Softmax,
    T5Buckets,
    Window,
    attend,
)
from heedful.nn import AlibiPosition, Attention, RelativePosition, T5Position

DIM, HEADS = 16, 4


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def twin_of_torch(**options):
    """A layer and torch's, with the same weights, in float64."""
    ours = Attention(DIM, HEADS, **options).double()
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.query_key_value.weight)
        theirs.in_proj_bias.copy_(ours.query_key_value.bias)
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    return ours, theirs


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_torchs_multi_head_attention(causal, seed):
    ours, theirs = twin_of_torch(neighbors="causal" if causal else "everyone")
    x = torch.randn(3, 7, DIM, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(7, 7).triu(1).bool() if causal else None
    out, wanted = ours(x), theirs(x, x, x, attn_mask=mask, need_weights=False)[0]
    close(out, wanted)
    gradient = torch.randn_like(out)
    parameters = [
        ours.query_key_value.weight,
        ours.query_key_value.bias,
        ours.output.weight,
        ours.output.bias,
    ]
    others = [theirs.in_proj_weight, theirs.in_proj_bias, theirs.out_proj.weight, theirs.out_proj.bias]
    found = torch.autograd.grad(out, [x, *parameters], gradient)
    expected = torch.autograd.grad(wanted, [x, *others], gradient)
    for a, b in zip(found, expected, strict=True):
        close(a, b)


def test_cross_attention_is_torchs(seed):
    ours, theirs = twin_of_torch()
    x, context = torch.randn(3, 7, DIM, dtype=torch.float64), torch.randn(3, 5, DIM, dtype=torch.float64)
    close(ours(x, context), theirs(x, context, context, need_weights=False)[0])
    close(ours(x, ours.remember(context)), ours(x, context))
    close(ours(x, x), ours(x))


def test_cross_attention_to_another_width_is_torchs(seed):
    ours = Attention(DIM, HEADS, context_dim=10).double()
    theirs = nn.MultiheadAttention(DIM, HEADS, kdim=10, vdim=10, batch_first=True, dtype=torch.float64)
    key, value = ours.key_value.weight.chunk(2)
    with torch.no_grad():
        theirs.q_proj_weight.copy_(ours.query_key_value.weight)
        theirs.k_proj_weight.copy_(key)
        theirs.v_proj_weight.copy_(value)
        theirs.in_proj_bias.copy_(torch.cat([ours.query_key_value.bias, ours.key_value.bias]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    x, context = torch.randn(3, 7, DIM, dtype=torch.float64), torch.randn(3, 5, 10, dtype=torch.float64)
    close(ours(x, context), theirs(x, context, context, need_weights=False)[0])
    with pytest.raises(ValueError, match="listens to a context; pass one"):
        ours(x)


def test_padding_is_torchs_key_padding_mask(seed):
    ours, theirs = twin_of_torch()
    x = torch.randn(3, 7, DIM, dtype=torch.float64)
    keep = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]  # (batch, keys)
    wanted = theirs(x, x, x, key_padding_mask=~keep, need_weights=False)[0]
    close(ours(x, neighbors=Mask(keep[:, None, None, :])), wanted)


def test_neighbors_of_a_call_narrow_those_of_the_layer(seed):
    layer = Attention(DIM, HEADS, neighbors="causal").double()
    parts = [torch.randn(1, n, DIM, dtype=torch.float64) for n in (3, 4, 2)]
    packed = layer(torch.cat(parts, 1), neighbors=Segments([3, 4, 2]))
    close(packed, torch.cat([layer(part) for part in parts], 1))


def test_shared_key_heads_are_repeated_key_heads(seed):
    few, many = Attention(DIM, 4, 2).double(), Attention(DIM, 4).double()
    query, key, value = few.query_key_value.weight.split([16, 8, 8])
    spread = [z.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1) for z in (key, value)]
    bias = few.query_key_value.bias.split([16, 8, 8])
    spread_bias = [z.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten() for z in bias[1:]]
    with torch.no_grad():
        many.query_key_value.weight.copy_(torch.cat([query, *spread]))
        many.query_key_value.bias.copy_(torch.cat([bias[0], *spread_bias]))
        many.output.load_state_dict(few.output.state_dict())
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    close(few(x), many(x))
    assert few.query_key_value.weight.shape == (32, DIM)


def test_the_formula(seed):
    """Head by head, as the docstring has it."""
    layer = Attention(DIM, HEADS, 2, head_dim=6, similarity=Polynomial(2), position=Alibi()).double()
    x = torch.randn(7, DIM, dtype=torch.float64)
    query, key, value = layer.query_key_value(x).split([24, 12, 12], -1)
    heads = []
    for h in range(HEADS):
        q, k, v = query[:, 6 * h : 6 * h + 6], key[:, 6 * (h // 2) :][:, :6], value[:, 6 * (h // 2) :][:, :6]
        slope = 2 ** (-8 * (h + 1) / HEADS)
        heads.append(attend(q, k, v, similarity=Polynomial(2), position=Alibi(slope), strategy="reference"))
    close(layer(x), layer.output(torch.cat(heads, -1)))


POSITIONS = {
    "none": lambda: None,
    "rotary": Rotary,
    "rotary, halves": lambda: Rotary(interleaved=False),
    "alibi": Alibi,
    "relative": lambda: Relative(torch.randn(HEADS, 9, dtype=torch.float64), clamp=True),
    "t5": lambda: T5Buckets(torch.randn(HEADS, 8, dtype=torch.float64), bidirectional=False, max_distance=16),
    "relative that learns": lambda: RelativePosition(HEADS, 3),
    "t5 that learns": lambda: T5Position(HEADS, 8, bidirectional=False),
    "alibi that learns": lambda: AlibiPosition(HEADS),
}
SIMILARITIES = {
    "softmax": "softmax",
    "scaled": Softmax(0.3),
    "argmax": "argmax",
    "elu": EluKernel(),
    "polynomial": "polynomial(degree=2)",
    "features": FeatureMap(torch.exp, positive=True),
    "additive": Additive(weight=torch.linspace(-1, 1, 4, dtype=torch.float64)),
    "uniform": "uniform",
}


@pytest.mark.parametrize("neighbors", ["causal", "causal & window(3)"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("position", POSITIONS)
def test_stepping_gives_what_forward_gives(position, similarity, neighbors, seed):
    layer = Attention(
        DIM,
        HEADS,
        2,
        similarity=SIMILARITIES[similarity],
        neighbors=neighbors,
        position=POSITIONS[position](),
        dropout=0.2,
    )
    layer = layer.double().eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 9, DIM, dtype=torch.float64)
    with torch.no_grad():
        whole, state, outs = layer(x), None, []
        for part in (slice(0, 4), slice(4, 5), slice(5, 8), slice(8, 9)):
            out, state = layer.step(x[:, part], state)
            outs.append(out)
    close(torch.cat(outs, 1), whole, 1e-8)
    assert state.length == 9


def test_gradients_pass_through_steps(seed):
    layer = Attention(DIM, HEADS, 2, neighbors=Causal(), position=RelativePosition(HEADS, 3)).double()
    x = torch.randn(2, 6, DIM, dtype=torch.float64)
    wanted = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    state, loss = None, 0.0
    for t in range(6):
        out, state = layer.step(x[:, t : t + 1], state)
        loss = loss + out.square().sum()
    for a, b in zip(torch.autograd.grad(loss, list(layer.parameters())), wanted, strict=True):
        close(a, b, 1e-8)


def test_a_learned_scale_starts_at_the_usual_one_and_learns(seed):
    plain, learned = Attention(DIM, HEADS).double(), Attention(DIM, HEADS, learned_scale=True).double()
    learned.load_state_dict({**plain.state_dict(), "scale": learned.scale})
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    close(learned(x), plain(x))
    learned(x).square().sum().backward()
    assert learned.scale.grad.shape == (HEADS,) and learned.scale.grad.abs().min() > 0
    with torch.no_grad():
        learned.scale.fill_(0)
    heard = plain.query_key_value(x)[..., 2 * DIM :].mean(1, keepdim=True)
    close(learned(x), plain.output(heard).expand(2, 7, DIM))


def test_a_scale_of_the_users_becomes_the_layers(seed):
    scale = nn.Parameter(torch.full((HEADS,), 0.3))
    layer = Attention(DIM, HEADS, similarity=Softmax(scale))
    assert dict(layer.named_parameters())["scale"] is scale
    far = copy.deepcopy(layer).to("meta")
    assert far.scale.is_meta and far.similarity.scale.is_meta
    called = torch.func.functional_call(layer, {"scale": torch.zeros(HEADS)}, (torch.randn(2, 5, DIM),))
    assert not torch.allclose(called, layer(torch.randn(2, 5, DIM)))


def test_modules_in_a_feature_map_belong_to_the_layer(seed):
    phi = nn.Sequential(nn.Linear(4, 5), nn.Softplus())
    layer = Attention(DIM, HEADS, similarity=FeatureMap(phi, positive=True))
    assert {"phi.0.weight", "phi.0.bias"} <= set(layer.state_dict())
    layer(torch.randn(2, 7, DIM)).sum().backward()
    assert phi[0].weight.grad.abs().sum() > 0


def test_modules_in_a_score_function_belong_to_the_layer(seed):
    class Close(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = nn.Parameter(torch.ones(()))

        def forward(self, query, key):
            return -self.rate * (query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)

    layer = Attention(DIM, HEADS, similarity=ScoreFunction(Close()))
    assert "fn.rate" in layer.state_dict()
    layer(torch.randn(2, 7, DIM)).square().sum().backward()
    assert layer.fn.rate.grad.abs() > 0


def test_dropout_is_for_training(seed):
    layer, x = Attention(DIM, HEADS, dropout=0.5), torch.randn(2, 7, DIM)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_any_leading_dimensions(seed):
    layer = Attention(DIM, HEADS).double()
    x = torch.randn(2, 3, 7, DIM, dtype=torch.float64)
    close(layer(x)[1, 2], layer(x[1, 2]))


def test_it_explains_its_plan(seed):
    layer = Attention(DIM, HEADS, similarity="polynomial(degree=2)", neighbors="causal")
    plan = layer.explain(torch.zeros(1, 16384, DIM), device="cpu")
    assert plan.strategy == "scan"
    assert layer.explain(torch.randn(2, 7, DIM), analyze=True).strategy
    assert "similarity=Polynomial(degree=2), neighbors=Causal()" in repr(layer)


def test_half_precision_under_autocast(seed):
    layer, x = Attention(DIM, HEADS, neighbors="causal", position=Rotary()), torch.randn(2, 7, DIM)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), layer(x), rtol=0.1, atol=0.05)


X = torch.randn(2, 7, DIM)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: Attention(16, 3), ValueError, "dim=16 does not divide into heads=3"),
        (lambda: Attention(16, 0), ValueError, r"Attention\(heads=0\)"),
        (lambda: Attention(16, 4, head_dim=0), ValueError, r"\(head_dim=0\): takes a whole number, 1 or"),
        (lambda: Attention(16, 4, head_dim=-4), ValueError, r"Attention\(head_dim=-4\)"),
        (lambda: Attention(16, 4, context_dim=0), ValueError, r"Attention\(context_dim=0\)"),
        (lambda: Attention(16, 4, 3), ValueError, "heads=4, kv_heads=3; the first must be a multiple"),
        (lambda: Attention(16, 4, dropout=1.0), ValueError, "dropout=1.0"),
        (lambda: Attention(16, 4, position="rotary"), TypeError, "position must be a Position"),
        (lambda: Attention(16, 4, similarity="softmx"), ValueError, "did you mean 'softmax'"),
        (lambda: Attention(16, 4, similarity=torch.exp), TypeError, "similarity must be a Similarity"),
        (lambda: Attention(16, 4, neighbors="casual"), ValueError, "did you mean 'causal'"),
        (
            lambda: Attention(16, 4, similarity="elu", learned_scale=True),
            ValueError,
            "learns the β of Softmax",
        ),
        (
            lambda: Attention(16, 4, similarity=Additive(weight=nn.Parameter(torch.zeros(4)))),
            TypeError,
            "holds a parameter, weight",
        ),
        (
            lambda: Attention(16, 4, position=Relative(nn.Parameter(torch.zeros(4, 11)))),
            TypeError,
            "holds a parameter, entries, .*RelativePosition",
        ),
        (
            lambda: Attention(16, 4, position=Alibi(nn.Parameter(torch.ones(4)))),
            TypeError,
            "holds a parameter, slopes",
        ),
        (
            lambda: Attention(16, 4)(X[..., :8]),
            ValueError,
            r"x has shape \(2, 7, 8\); takes \(..., length, 16\)",
        ),
        (lambda: Attention(16, 4)(X[0, 0]), ValueError, r"x has shape \(16,\)"),
        (lambda: Attention(16, 4)([1.0]), TypeError, "x must be a tensor, got list"),
        (lambda: Attention(16, 4)(X, X[..., :8]), ValueError, r"context has shape \(2, 7, 8\)"),
        (lambda: Attention(16, 4, context_dim=8)(X, X), ValueError, r"takes \(..., length, 8\)"),
        (lambda: Attention(16, 4).step(X), ValueError, "looks ahead"),
        (lambda: Attention(16, 4, neighbors=Window(2)).step(X), ValueError, "looks ahead"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said(call, error, words):
    with pytest.raises(error, match=words):
        call()
