"""Text from GPT-micro with a cache, against transformers' `generate` of the same model and the same text."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from . import interleaved
from .training import heedful_gpt, transformers_gpt

LENGTH, GOAL = 512, 3.0


def run(*, quick: bool, device: str):
    threads = torch.get_num_threads()
    torch.set_num_threads(min(2, threads))
    try:
        length = 64 if quick else LENGTH
        # Characters; and GPT-2's tokens, where reading the last matrix is most of the work, whoever does it.
        rows = [_row(87, length, device), _row(50257, length // 4, device)]
    finally:
        torch.set_num_threads(threads)
    first = rows[0]
    if first["faster"] is None:
        return rows, "transformers is not installed; nothing to compare with", None
    verdict = (
        f"{first['faster']:.1f} times as fast as transformers (goal {GOAL:g}), {first['µs a token']:.0f} µs "
        f"a token, of which the matrix products alone take {first['products alone µs']:.0f}"
    )
    return rows, verdict, first["faster"] >= GOAL and all(row["same text"] for row in rows)


def _row(vocabulary: int, length: int, device: str) -> dict:
    ours = heedful_gpt(vocabulary, block=1 + LENGTH).to(device).eval()
    prompt = torch.zeros(1, 1, dtype=torch.long, device=device)
    calls = {
        "heedful": lambda: ours.generate(prompt[0], length, temperature=0),
        "products": lambda: _products(ours, length),
    }
    theirs = transformers_gpt(ours)
    if theirs is not None:
        theirs.eval()
        options = {"do_sample": False, "use_cache": True, "pad_token_id": 0, "eos_token_id": None}
        options |= {"attention_mask": torch.ones_like(prompt), "max_new_tokens": length}
        calls["transformers"] = torch.inference_mode()(lambda: theirs.generate(prompt, **options))
    taken = {name: 1e6 * seconds / length for name, seconds in interleaved(calls, rounds=3, warm=1).items()}
    return {
        "vocabulary": vocabulary,
        "µs a token": taken["heedful"],
        "products alone µs": taken["products"],
        "transformers µs": taken.get("transformers"),
        "faster": taken["transformers"] / taken["heedful"] if theirs is not None else None,
        "same text": theirs is not None and calls["heedful"]().equal(calls["transformers"]()[0]),
    }


@torch.inference_mode()
def _products(gpt, length: int) -> None:
    """The matrix products of so many tokens, and nothing else: what no eager decoder can be faster than."""
    layers = [
        layer
        for block in gpt.blocks
        for layer in (
            block.attention.query_key_value,
            block.attention.output,
            block.feed_forward.input,
            block.feed_forward.output,
        )
    ]
    products = [(torch.zeros_like(layer.weight[:1]), layer.weight, layer.bias) for layer in layers]
    products.append((torch.zeros_like(gpt.embedding.weight[:1]), gpt.embedding.weight, None))
    for _ in range(length):
        for x, weight, bias in products:
            F.linear(x, weight, bias)
