"""A training step of GPT-micro (forward, backward, AdamW), against the same model of transformers."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ..models import GPT
from . import interleaved

BATCH, BLOCK, VOCABULARY = 16, 128, 87


def run(*, quick: bool, device: str):
    rows = []
    for dropout in (0.1, 0.0):
        ours = heedful_gpt(VOCABULARY, block=BLOCK, dropout=dropout).to(device)
        theirs = transformers_gpt(ours, dropout=dropout)
        tokens = torch.randint(VOCABULARY, (BATCH, BLOCK + 1), device=device)
        calls = {"heedful": _step(ours, lambda x, model=ours: model(x), tokens)}
        if theirs is not None:
            calls["transformers"] = _step(
                theirs, lambda x, model=theirs: model(x, use_cache=False).logits, tokens
            )
        taken = interleaved(calls, rounds=5 if quick else 15)
        row = {"dropout": dropout, "ms a step": 1e3 * taken["heedful"]}
        if theirs is not None:
            row |= {
                "transformers ms": 1e3 * taken["transformers"],
                "faster": taken["transformers"] / taken["heedful"],
            }
        rows.append(row)
    if "faster" not in rows[0]:
        return rows, "transformers is not installed; nothing to compare with", None
    ratios = [row["faster"] for row in rows]
    verdict = f"{ratios[0]:.2f} times as fast as transformers, {ratios[1]:.2f} without dropout (goal 1)"
    return rows, verdict, min(ratios) >= 1


def heedful_gpt(vocabulary: int, *, block: int, dropout: float = 0.0) -> GPT:
    """GPT-micro in the shape of GPT-2."""
    torch.manual_seed(0)
    shape = {"norm": "layer", "position": "learned", "tied": True}
    gpt = GPT.of_size("micro", vocabulary=vocabulary, block=block, dropout=dropout, **shape)
    with torch.no_grad():
        for parameter in gpt.parameters():  # as they begin, weights say the same token again and again
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return gpt


def transformers_gpt(ours: GPT, *, dropout: float = 0.0):
    """The same model, weights and all, of transformers; None where that is not installed."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return None
    config = GPT2Config(
        vocab_size=ours.vocabulary,
        n_positions=ours.block,
        n_embd=ours.embedding.embedding_dim,
        n_layer=len(ours.blocks),
        n_head=ours.blocks[0].attention.heads,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    theirs = GPT2LMHeadModel(config).to(ours.embedding.weight.device)
    with torch.no_grad():
        theirs.transformer.wte.weight.copy_(ours.embedding.weight)
        theirs.transformer.wpe.weight.copy_(ours.positions.weight)
        theirs.transformer.ln_f.load_state_dict(ours.norm.state_dict())
        for block, layer in zip(ours.blocks, theirs.transformer.h, strict=True):
            layer.ln_1.load_state_dict(block.attention_norm.state_dict())
            layer.ln_2.load_state_dict(block.feed_forward_norm.state_dict())
            for mine, other in (
                (block.attention.query_key_value, layer.attn.c_attn),
                (block.attention.output, layer.attn.c_proj),
                (block.feed_forward.input, layer.mlp.c_fc),
                (block.feed_forward.output, layer.mlp.c_proj),
            ):
                other.weight.copy_(mine.weight.mT)  # it keeps its matrices the other way round
                other.bias.copy_(mine.bias)
    return theirs


def _step(model, logits, tokens):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(logits(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step
