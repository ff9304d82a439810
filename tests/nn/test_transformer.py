"""Blocks: torch's encoder and decoder layers and a Llama layer of transformers, with equal weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful import Alibi, Mask, Rotary, Segments
from heedful.nn import FeedForward, TransformerBlock

DIM, HEADS = 16, 4


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def give(theirs, ours):
    """The weights of an attention of ours to torch's."""
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.query_key_value.weight)
        theirs.in_proj_bias.copy_(ours.query_key_value.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def noisy(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module.double()


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_it_is_torchs_encoder_layer(order, activation, seed):
    ours = noisy(TransformerBlock(DIM, HEADS, hidden=24, order=order, activation=activation))
    theirs = nn.TransformerEncoderLayer(
        DIM, HEADS, 24, 0.0, activation, batch_first=True, norm_first=order == "pre", dtype=torch.float64
    )
    give(theirs.self_attn, ours.attention)
    theirs.linear1.load_state_dict(ours.feed_forward.input.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.output.state_dict())
    theirs.norm1.load_state_dict(ours.attention_norm.state_dict())
    theirs.norm2.load_state_dict(ours.feed_forward_norm.state_dict())
    x = torch.randn(3, 7, DIM, dtype=torch.float64, requires_grad=True)
    out, wanted = ours(x), theirs(x)
    close(out, wanted)
    gradient = torch.randn_like(out)
    close(torch.autograd.grad(out, x, gradient), torch.autograd.grad(wanted, x, gradient))
    keep = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]
    masked = theirs(x, src_key_padding_mask=~keep)
    close(ours(x, neighbors=Mask(keep[:, None, None, :]))[keep], masked[keep])


@pytest.mark.parametrize("order", ["pre", "post"])
def test_it_is_torchs_decoder_layer(order, seed):
    ours = noisy(TransformerBlock(DIM, HEADS, order=order, activation="relu", cross=True, neighbors="causal"))
    theirs = nn.TransformerDecoderLayer(
        DIM, HEADS, 4 * DIM, 0.0, batch_first=True, norm_first=order == "pre", dtype=torch.float64
    )
    give(theirs.self_attn, ours.attention)
    give(theirs.multihead_attn, ours.cross)
    theirs.linear1.load_state_dict(ours.feed_forward.input.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.output.state_dict())
    norms = (ours.attention_norm, ours.cross_norm, ours.feed_forward_norm)
    for a, b in zip((theirs.norm1, theirs.norm2, theirs.norm3), norms, strict=True):
        a.load_state_dict(b.state_dict())
    x, memory = torch.randn(3, 7, DIM, dtype=torch.float64), torch.randn(3, 5, DIM, dtype=torch.float64)
    ahead = torch.ones(7, 7).triu(1).bool()
    close(ours(x, memory), theirs(x, memory, tgt_mask=ahead))
    keep = torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    wanted = theirs(x, memory, tgt_mask=ahead, memory_key_padding_mask=~keep)
    close(ours(x, memory, context_neighbors=Mask(keep[:, None, None, :])), wanted)


def test_it_is_transformers_llama_layer(seed):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=DIM,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        rms_norm_eps=1e-6,
        num_hidden_layers=1,
        vocab_size=11,
        attn_implementation="eager",
    )
    model = llama.LlamaModel(config).double().eval()
    theirs, rotary = noisy(model.layers[0]), model.rotary_emb
    ours = TransformerBlock(
        DIM,
        4,
        2,
        hidden=24,
        norm="rms",
        activation="swiglu",
        bias=False,
        neighbors="causal",
        position=Rotary(interleaved=False),
    ).double()
    with torch.no_grad():
        attention = theirs.self_attn
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        ours.attention.query_key_value.weight.copy_(torch.cat([part.weight for part in parts]))
        ours.attention.output.weight.copy_(attention.o_proj.weight)
        gated = torch.cat([theirs.mlp.gate_proj.weight, theirs.mlp.up_proj.weight])
        ours.feed_forward.input.weight.copy_(gated)
        ours.feed_forward.output.weight.copy_(theirs.mlp.down_proj.weight)
        ours.attention_norm.weight.copy_(theirs.input_layernorm.weight)
        ours.feed_forward_norm.weight.copy_(theirs.post_attention_layernorm.weight)
    x = torch.randn(3, 7, DIM, dtype=torch.float64)
    ahead = torch.full((7, 7), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    angles = rotary(x, torch.arange(7)[None])
    wanted = theirs(x, attention_mask=ahead, position_embeddings=angles)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    # Transformers takes the mean square of its norm in float32, whatever the input.
    close(ours(x), wanted, 1e-5)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("similarity", ["softmax", "elu"])
def test_stepping_gives_what_forward_gives(order, similarity, seed):
    block = noisy(
        TransformerBlock(
            DIM, HEADS, order=order, similarity=similarity, neighbors="causal", position=Alibi(), dropout=0.1
        )
    ).eval()
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    with torch.no_grad():
        first, state = block.step(x[:, :5])
        second, state = block.step(x[:, 5:6], state)
        third, _ = block.step(x[:, 6:], state)
        close(torch.cat([first, second, third], 1), block(x), 1e-8)


def test_a_decoder_steps_too_with_a_context_remembered_or_not(seed):
    block = noisy(TransformerBlock(DIM, HEADS, cross=True, context_dim=10, neighbors="causal")).eval()
    x, context = torch.randn(2, 4, DIM, dtype=torch.float64), torch.randn(2, 5, 10, dtype=torch.float64)
    with torch.no_grad():
        whole = block(x, context)
        for heard in (context, block.cross.remember(context)):
            state, outs = None, []
            for t in range(4):
                out, state = block.step(x[:, t : t + 1], state, heard)
                outs.append(out)
            close(torch.cat(outs, 1), whole)


def test_packed_sequences_do_not_meet(seed):
    block = noisy(TransformerBlock(DIM, HEADS, norm="rms", activation="swiglu"))
    parts = [torch.randn(1, n, DIM, dtype=torch.float64) for n in (3, 4)]
    packed = block(torch.cat(parts, 1), neighbors=Segments([3, 4]))
    close(packed, torch.cat([block(part) for part in parts], 1))


def test_feed_forward_is_its_formula(seed):
    x = torch.randn(2, 3, DIM, dtype=torch.float64)
    functions = {
        "gelu": F.gelu,
        "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
        "relu": F.relu,
    }
    for name, function in functions.items():
        layer = FeedForward(DIM, activation=name).double()
        assert layer.input.out_features == 4 * DIM
        close(layer(x), layer.output(function(layer.input(x))))
    layer = FeedForward(DIM, activation="swiglu", bias=False).double()
    gate, value = layer.input.weight.chunk(2)
    close(layer(x), (F.silu(x @ gate.mT) * (x @ value.mT)) @ layer.output.weight.mT)
    assert layer.output.in_features == 48  # 8/3 · 16 = 42.7, up to a multiple of 8
    assert FeedForward(96, activation="swiglu").output.in_features == 256


def test_dropout_falls_where_it_is_said_to(seed):
    x = torch.randn(2, 7, DIM)
    for option in ("dropout", "attention_dropout", "hidden_dropout"):
        block = TransformerBlock(DIM, HEADS, **{option: 0.5})
        assert not torch.equal(block(x), block(x)), option
        assert torch.equal(block.eval()(x), block(x))
    both = TransformerBlock(DIM, HEADS, dropout=0.3)
    assert both.attention.dropout == 0.3
    assert TransformerBlock(DIM, HEADS, dropout=0.3, attention_dropout=0.0).attention.dropout == 0


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: TransformerBlock(16, 4, norm="batch"), "norm='batch'.*takes one of 'layer', 'rms'"),
        (lambda: TransformerBlock(16, 4, order="middle"), "order='middle'"),
        (lambda: TransformerBlock(16, 4, activation="glu"), "activation='glu'.*did you mean"),
        (lambda: FeedForward(16, 0), "hidden=0"),
        (lambda: TransformerBlock(16, 4)(torch.randn(2, 3, 16), torch.randn(2, 3, 16)), "cross=True"),
        (lambda: TransformerBlock(16, 4, cross=True)(torch.randn(2, 3, 16)), "listens to a context"),
    ],
)
def test_what_is_wrong_is_said(call, words):
    with pytest.raises(ValueError, match=words):
        call()
