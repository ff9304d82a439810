"""MultiheadAttention against torch's: the same weights give the same outputs, weights and gradients."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from heedful import (
    Additive,
    Alibi,
    Causal,
    FeatureMap,
    Graph,
    Polynomial,
    Relative,
    Rotary,
    Softmax,
    Window,
    attend,
)
from heedful.interop.multihead import MultiheadAttention, convert
from heedful.nn import RelativePosition

QUERIES, KEYS, BATCH, DIM, HEADS = 5, 7, 3, 16, 4

FORMS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "added key": {"add_bias_kv": True},
    "zero key": {"add_zero_attn": True},
    "both keys": {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
    "other widths": {"kdim": 6, "vdim": 10},
    "one other width": {"vdim": 10, "batch_first": True, "bias": False, "add_zero_attn": True},
}
every = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def pair(form, dtype=torch.float64):
    theirs = nn.MultiheadAttention(DIM, HEADS, **form, dtype=dtype)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)  # torch starts biases at zero, which would hide them
    ours = MultiheadAttention(DIM, HEADS, **form, dtype=dtype)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(form, dtype=torch.float64, batched=True):
    widths = (DIM, form.get("kdim", DIM), form.get("vdim", DIM))
    lengths = (QUERIES, KEYS, KEYS)
    found = [
        torch.randn(BATCH, length, width, dtype=dtype) for length, width in zip(lengths, widths, strict=True)
    ]
    if not batched:
        found = [x[0] for x in found]
    elif not form.get("batch_first"):
        found = [x.transpose(0, 1) for x in found]
    return [x.requires_grad_() for x in found]


def forbidding(shape, dtype):
    """Pairs forbidden at random, but for the first key: boolean, −inf, or graded with −inf among it."""
    forbidden = torch.rand(shape) < 0.4
    forbidden[..., 0] = False
    if dtype == "boolean":
        return forbidden
    added = torch.zeros(shape, dtype=torch.float64).masked_fill(forbidden, -math.inf)
    return added if dtype == "silent" else added + torch.randn(shape, dtype=torch.float64)


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def agree(theirs, ours, given, **options):
    """Equal outputs, weights and gradients of inputs and parameters."""
    (a, alpha), (b, beta) = theirs(*given, **options), ours(*given, **options)
    close(b, a)
    if options.get("need_weights", True):
        close(beta, alpha)
    else:
        assert beta is None
    direction = torch.randn_like(a)
    both = []
    for module, out in ((theirs, a), (ours, b)):
        wanted = [*given, *module.parameters()]
        both.append(torch.autograd.grad(out, wanted, direction))
    for x, y in zip(*both, strict=True):
        close(y, x, 1e-9)


@every
@pytest.mark.parametrize("batched", [True, False], ids=["batch", "single"])
def test_equal_to_torch(form, batched, seed):
    theirs, ours = pair(form)
    given = inputs(form, batched=batched)
    for need, average in itertools.product([True, False], repeat=2):
        agree(theirs, ours, given, need_weights=need, average_attn_weights=average)


@every
@pytest.mark.parametrize("kind", ["boolean", "silent", "graded"])
@pytest.mark.parametrize("masks", ["pairs", "own pairs", "padding", "both"])
def test_equal_with_masks(form, kind, masks, seed):
    theirs, ours = pair(form)
    options = {}
    if masks in ("pairs", "both"):
        options["attn_mask"] = forbidding((QUERIES, KEYS), kind)
    if masks == "own pairs":
        options["attn_mask"] = forbidding((BATCH * HEADS, QUERIES, KEYS), kind)
    if masks in ("padding", "both"):
        options["key_padding_mask"] = forbidding((BATCH, KEYS), kind)
    for need in (True, False):
        agree(theirs, ours, inputs(form), need_weights=need, **options)


def test_masks_without_a_batch(seed):
    theirs, ours = pair({})
    for kind in ("boolean", "silent", "graded"):
        padding, mask = forbidding((KEYS,), kind), forbidding((HEADS, QUERIES, KEYS), kind)
        agree(theirs, ours, inputs({}, batched=False), key_padding_mask=padding, attn_mask=mask)


@pytest.mark.parametrize("shared", ["all", "key and value"])
def test_one_tensor_given_several_times(shared, seed):
    theirs, ours = pair({"batch_first": True})
    query, key = (torch.randn(BATCH, length, DIM, dtype=torch.float64) for length in (QUERIES, KEYS))
    given = (key, key, key) if shared == "all" else (query, key, key)
    close(ours(*given)[0], theirs(*given)[0])


def test_equal_in_float32(seed):
    theirs, ours = pair({}, torch.float32)
    given = inputs({}, torch.float32)
    mask = forbidding((QUERIES, KEYS), "graded").float()
    for options in ({}, {"attn_mask": mask}, {"attn_mask": mask == -math.inf}):
        (a, alpha), (b, beta) = theirs(*given, **options), ours(*given, **options)
        close(b, a, 1e-5)
        close(beta, alpha, 1e-5)


def test_the_gradient_of_a_graded_mask(seed):
    theirs, ours = pair({})
    given = inputs({})
    mask = torch.randn(QUERIES, KEYS, dtype=torch.float64, requires_grad=True)
    a, b = (
        torch.autograd.grad(module(*given, attn_mask=mask)[0].sum(), mask)[0] for module in (theirs, ours)
    )
    close(b, a)


@pytest.mark.parametrize("kind", ["boolean", "silent", "graded"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_who_hears_nobody_gets_zero(kind, need_weights, seed):
    """Where torch gives NaN."""
    _, ours = pair({"bias": False})
    given = inputs({})
    mask = forbidding((QUERIES, KEYS), kind)
    mask[2] = True if kind == "boolean" else -math.inf
    out, weights = ours(*given, attn_mask=mask, need_weights=need_weights)
    assert torch.equal(out[2], torch.zeros_like(out[2]))
    assert out[[0, 1, 3, 4]].abs().sum(-1).gt(0).all()
    if need_weights:
        assert torch.equal(weights[:, 2], torch.zeros_like(weights[:, 2]))
    for gradient in torch.autograd.grad(out.sum(), given):
        assert gradient.isfinite().all()


def test_is_causal(seed):
    theirs, ours = pair({"batch_first": True})
    x = torch.randn(BATCH, KEYS, DIM, dtype=torch.float64)
    for mask in (
        nn.Transformer.generate_square_subsequent_mask(KEYS, dtype=torch.float64),
        torch.ones(KEYS, KEYS, dtype=torch.bool).triu(1),
    ):
        for need in (True, False):
            expected = theirs(x, x, x, attn_mask=mask, need_weights=need)[0]
            close(ours(x, x, x, attn_mask=mask, need_weights=need)[0], expected)
            close(ours(x, x, x, attn_mask=mask, is_causal=True, need_weights=need)[0], expected)
            close(ours(x, x, x, is_causal=True, need_weights=need)[0], expected)


def test_causal_with_an_added_key_reads_the_mask(seed):
    theirs, ours = pair({"add_bias_kv": True})
    x = torch.randn(KEYS, BATCH, DIM, dtype=torch.float64)
    mask = torch.ones(KEYS, KEYS, dtype=torch.bool).triu(1)
    expected = theirs(x, x, x, attn_mask=mask)[0]
    close(ours(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0], expected)
    with pytest.raises(ValueError, match="1 added"):
        ours(x, x, x, is_causal=True)


def test_dropout(seed):
    ours = MultiheadAttention(DIM, HEADS, dropout=0.5)
    given = inputs({}, torch.float32)
    a = ours(*given, need_weights=False)[0]
    assert not torch.allclose(ours(*given, need_weights=False)[0], a)
    torch.manual_seed(seed)
    out, weights = ours(*given, average_attn_weights=False)
    torch.manual_seed(seed)
    assert torch.equal(ours(*given)[0], out)
    assert (weights == 0).any()  # weights after dropout, as torch's
    ours.eval()
    assert torch.equal(ours(*given)[0], ours(*given)[0])


def test_the_same_seed_gives_torchs_weights(seed):
    for form in FORMS.values():
        torch.manual_seed(seed)
        theirs = nn.MultiheadAttention(DIM, HEADS, **form)
        torch.manual_seed(seed)
        ours = MultiheadAttention(DIM, HEADS, **form)
        assert list(theirs.state_dict()) == list(ours.state_dict())
        for x, y in zip(theirs.parameters(), ours.parameters(), strict=True):
            assert torch.equal(x, y)
        ours._reset_parameters()


def layers(**options):
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 32, dropout=0.0, batch_first=True, **options)
    swapped = copy.deepcopy(layer)
    swapped.self_attn = MultiheadAttention(DIM, HEADS, batch_first=True)
    swapped.self_attn.load_state_dict(layer.self_attn.state_dict())
    return layer.eval(), swapped.eval()


class TestEncoder:
    """In place of the attention of torch's encoder, whose fast path must not pass it by."""

    @pytest.fixture
    def calls(self, monkeypatch):
        seen, forward = [], MultiheadAttention.forward

        def counting(self, *given, **options):
            seen.append(1)
            return forward(self, *given, **options)

        monkeypatch.setattr(MultiheadAttention, "forward", counting)
        return seen

    @pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
    @pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
    def test_layer(self, options, grad, seed, calls):
        layer, swapped = layers(**options)
        x = torch.randn(BATCH, KEYS, DIM)
        padding = torch.zeros(BATCH, KEYS, dtype=torch.bool)
        padding[1, 5:] = True
        causal = nn.Transformer.generate_square_subsequent_mask(KEYS)
        with torch.set_grad_enabled(grad):
            for given in ({}, {"src_key_padding_mask": padding}, {"src_mask": causal, "is_causal": True}):
                real = ~given.get("src_key_padding_mask", torch.zeros_like(padding))
                close(swapped(x, **given)[real], layer(x, **given)[real], 1e-5)
                assert calls.pop()

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_encoder(self, when, seed, calls):
        """With padding and no gradient torch packs the batch into a nested tensor."""
        layer, swapped = layers()
        theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=when == "after").eval()
        if when == "before":
            ours = nn.TransformerEncoder(swapped, 2, enable_nested_tensor=False).eval()
        else:
            ours = copy.deepcopy(theirs)
            assert convert(ours) == 2
        x = torch.randn(BATCH, KEYS, DIM)
        padding = torch.zeros(BATCH, KEYS, dtype=torch.bool)
        padding[1, 5:] = padding[2, 3:] = True
        with torch.no_grad():
            for given in ({}, {"src_key_padding_mask": padding}):
                real = ~given.get("src_key_padding_mask", torch.zeros_like(padding))
                close(ours(x, **given)[real], theirs(x, **given)[real], 1e-5)
                assert len(calls) >= 2
                calls.clear()

    def test_training_step(self, seed):
        theirs = nn.Transformer(DIM, HEADS, 1, 1, 32, dropout=0.0, batch_first=True).double()
        ours = copy.deepcopy(theirs)
        assert convert(ours) == 3
        source, target = torch.randn(2, BATCH, KEYS, DIM, dtype=torch.float64)
        causal = nn.Transformer.generate_square_subsequent_mask(KEYS, dtype=torch.float64)
        for model in (theirs, ours):
            model(source, target, tgt_mask=causal, tgt_is_causal=True).pow(2).sum().backward()
        for (name, x), (other, y) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
            assert name == other
            close(y.grad, x.grad, 1e-8)


def test_convert_shares_the_weights(seed):
    model = nn.Sequential(nn.MultiheadAttention(DIM, HEADS, kdim=6, add_bias_kv=True).eval(), nn.Linear(2, 2))
    before = list(model.parameters())
    keys = list(model.state_dict())
    assert convert(model, similarity="polynomial(degree=2)") == 1
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert list(model.state_dict()) == keys
    assert isinstance(model[0].similarity, Polynomial)
    assert not model[0].training
    assert convert(model) == 0


class TestChoices:
    def test_similarity_neighbors_and_position(self, seed):
        x = torch.randn(BATCH, 9, DIM, dtype=torch.float64)
        for similarity, neighbors, position in itertools.product(
            ["softmax", Polynomial(2)], ["everyone", "causal & window(3)"], [None, Alibi(), Rotary()]
        ):
            layer = MultiheadAttention(
                DIM,
                HEADS,
                batch_first=True,
                dtype=torch.float64,
                similarity=similarity,
                neighbors=neighbors,
                position=position,
            )
            q, k, v = (layer._split(z, False, False) for z in layer._project(x, x, x))
            heard = attend(
                q, k, v, similarity=layer.similarity, neighbors=layer.neighbors, position=layer.position
            )
            expected = layer.out_proj(heard.transpose(1, 2).flatten(-2))
            (a, weights), (b, _) = (
                layer(x, x, x, average_attn_weights=False),
                layer(x, x, x, need_weights=False),
            )
            close(a, expected)
            close(b, expected)
            close(weights @ v, heard)

    def test_a_mask_beside_a_window(self, seed):
        x = torch.randn(BATCH, 9, DIM)
        padding = torch.zeros(BATCH, 9, dtype=torch.bool)
        padding[:, 4] = True
        layer = MultiheadAttention(DIM, HEADS, batch_first=True, neighbors=Window(2))
        _, weights = layer(x, x, x, key_padding_mask=padding)
        apart = (torch.arange(9)[:, None] - torch.arange(9)).abs()
        assert (weights[:, (apart > 2) | (torch.arange(9) == 4)] == 0).all()
        assert (weights[:, (apart <= 2) & (torch.arange(9) != 4)] > 0).all()

    def test_a_graph(self, seed):
        graph = Graph.from_edges(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 3, 0]), nodes=5)
        x = torch.randn(5, DIM)
        layer = MultiheadAttention(DIM, HEADS, neighbors=graph)
        out, weights = layer(x, x, x)
        close(out, layer(x, x, x, need_weights=False)[0], 1e-5)
        assert set(map(tuple, weights.nonzero().tolist())) == {(1, 0), (2, 1), (3, 2), (0, 2)}

    def test_a_position_that_learns(self, seed):
        layer = MultiheadAttention(DIM, HEADS, batch_first=True, position=RelativePosition(HEADS, 4))
        x = torch.randn(BATCH, 9, DIM)
        layer(x, x, x, need_weights=False)[0].sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())

    def test_a_similarity_that_learns(self, seed):
        x = torch.randn(BATCH, 9, DIM)
        phi = nn.Sequential(nn.Linear(DIM // HEADS, 5), nn.Softplus())
        for similarity, name in (
            (Softmax(nn.Parameter(torch.full((HEADS,), 0.3))), "scale"),
            (FeatureMap(phi, positive=True), "phi.0.weight"),
        ):
            layer = MultiheadAttention(DIM, HEADS, batch_first=True, similarity=similarity)
            layer(x, x, x, need_weights=False)[0].square().sum().backward()
            assert dict(layer.named_parameters())[name].grad.abs().sum() > 0
            zero = {name: torch.zeros_like(dict(layer.named_parameters())[name])}
            assert not torch.equal(
                torch.func.functional_call(layer, zero, (x, x, x))[0], copy.deepcopy(layer)(x, x, x)[0]
            )
            shared = MultiheadAttention.from_torch(nn.MultiheadAttention(DIM, HEADS), similarity=similarity)
            assert dict(shared.named_parameters())[name] is dict(layer.named_parameters())[name]

    @pytest.mark.parametrize(
        "choice, words",
        [
            ({"position": Relative(nn.Parameter(torch.zeros(11)))}, "holds a parameter, entries"),
            ({"similarity": Additive(weight=nn.Parameter(torch.ones(4)))}, "holds a parameter, weight"),
            ({"position": "rotary"}, "position must be a Position"),
        ],
    )
    def test_what_would_not_be_trained_is_refused(self, choice, words):
        with pytest.raises(TypeError, match=f"^MultiheadAttention: .*{words}"):
            MultiheadAttention(DIM, HEADS, **choice)


def test_compiles_whole(seed):
    theirs, ours = pair({"batch_first": True}, torch.float32)
    x = torch.randn(BATCH, KEYS, DIM)
    mask = forbidding((KEYS, KEYS), "graded").float()
    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    for options in (
        {},
        {"need_weights": False},
        {"attn_mask": mask},
        {"attn_mask": mask < 0, "need_weights": False},
    ):
        close(compiled(x, x, x, **options)[0], theirs(x, x, x, **options)[0], 1e-5)


class TestRefuses:
    def test_widths(self):
        with pytest.raises(ValueError, match="embed_dim=10 does not divide into num_heads=3"):
            MultiheadAttention(10, 3)
        layer = MultiheadAttention(DIM, HEADS, kdim=6)
        with pytest.raises(ValueError, match=r"key has shape \(7, 3, 16\)"):
            layer(*(torch.randn(7, 3, DIM),) * 3)
        with pytest.raises(ValueError, match="agree"):
            MultiheadAttention(DIM, HEADS)(torch.randn(4, DIM), torch.randn(5, DIM), torch.randn(6, DIM))

    def test_dropout(self):
        with pytest.raises(ValueError, match=r"dropout=1\.5"):
            MultiheadAttention(DIM, HEADS, dropout=1.5)

    def test_masks(self):
        layer, x = MultiheadAttention(DIM, HEADS), torch.randn(7, 3, DIM)
        with pytest.raises(
            ValueError, match=r"attn_mask has shape \(7, 6\); takes \(7, 7\), or \(12, 7, 7\)"
        ):
            layer(x, x, x, attn_mask=torch.zeros(7, 6))
        with pytest.raises(ValueError, match=r"key_padding_mask has shape \(7, 3\); takes \(3, 7\)"):
            layer(x, x, x, key_padding_mask=torch.zeros(7, 3))
        with pytest.raises(TypeError, match=r"attn_mask is torch\.int64"):
            layer(x, x, x, attn_mask=torch.zeros(7, 7, dtype=torch.long))

    def test_a_causal_hint_alone_for_unequal_lengths(self):
        with pytest.raises(ValueError, match="5 and 7"):
            MultiheadAttention(DIM, HEADS)(*inputs({}, torch.float32), is_causal=True)

    def test_keys_that_stand_nowhere_beside_positions(self):
        for choice in ({"neighbors": Causal()}, {"position": Alibi()}):
            with pytest.raises(ValueError, match="stands nowhere"):
                MultiheadAttention(DIM, HEADS, add_zero_attn=True, **choice)

    def test_choices_that_are_not(self):
        with pytest.raises(TypeError, match="similarity"):
            MultiheadAttention(DIM, HEADS, similarity=3)
        with pytest.raises(TypeError, match=r"takes a torch\.nn\.MultiheadAttention, got Linear"):
            MultiheadAttention.from_torch(nn.Linear(2, 2))
        with pytest.raises(TypeError, match="from_torch"):
            convert(nn.MultiheadAttention(DIM, HEADS))
