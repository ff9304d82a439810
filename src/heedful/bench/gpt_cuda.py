"""GPT-mini on a GPU: a compiled training step beside plain code, and text beside transformers.

6 layers, 6 heads, 384 wide, 128 tokens: LayerNorm, learned positions, the last matrix tied, as in GPT-2. The
plain code is what is written by hand in the manner of nanoGPT: SDPA, one linear layer for q, k and v. Both
are compiled, take their steps with fused AdamW and compute in bfloat16 by autocast.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.nn import functional as F

from ..models import GPT
from .gat_cuda import milliseconds
from .training import transformers_gpt

LAYERS, HEADS, WIDE, BLOCK, VOCABULARY = 6, 6, 384, 128, 87
PEAK = 989e12  # FLOP/s in bfloat16, by the datasheet


class Plain(nn.Module):
    """A GPT by hand."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDE), nn.Embedding(BLOCK, WIDE)
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDE)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class PlainBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        self.heard, self.said = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = self.heard(self.first(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.said(y.transpose(1, 2).reshape(rows, length, WIDE))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


def mini(**changes) -> GPT:
    shape = {"norm": "layer", "position": "learned", "tied": True, "dropout": 0.0}
    return GPT.of_size("mini", vocabulary=VOCABULARY, block=BLOCK, **{**shape, **changes})


def run_training(*, quick: bool, device: str):
    rows = []
    for batch in (128,) if quick else (128, 1024):
        steps = {}
        for what, model in (("heedful", mini()), ("plain", Plain())):
            steps[what] = _step(model.cuda(), batch)
        parameters = sum(p.numel() for p in Plain().parameters())
        taken: dict[str, list[float]] = {what: [] for what in steps}
        for turn in range(2 if quick else 8):  # in turns, each as often the first
            for what, step in sorted(steps.items(), reverse=turn % 2 == 1):
                taken[what].append(milliseconds(lambda step=step: [step() for _ in range(10)], 3, 1) / 10)
        tokens = batch * BLOCK
        work = tokens * (6 * parameters + 12 * LAYERS * WIDE * BLOCK)
        for what, times in taken.items():
            ms = min(times)
            rows.append(
                {"what": what, "batch": batch, "step ms": ms, "M tokens/s": tokens / ms / 1e3,
                 "MFU": work / (ms / 1e3) / PEAK}
            )  # fmt: skip
    ratios = [b["step ms"] / a["step ms"] for a, b in zip(rows[::2], rows[1::2], strict=True)]
    said = ", ".join(
        f"{ratio:.2f}× plain compiled code at batch {row['batch']} ({row['M tokens/s']:.2f} M tokens/s)"
        for ratio, row in zip(ratios, rows[::2], strict=True)
    )
    return rows, f"{said} (goal 1)", min(ratios) >= 0.99  # the spread of two runs of one version is 1 %


def _step(model: nn.Module, batch: int):
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (batch, BLOCK + 1), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = compiled(tokens[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def run_generation(*, quick: bool, device: str):
    rows, goals = [], {1: 10, 64: 3}
    torch.manual_seed(0)
    ours = mini(activation="gelu_tanh").cuda().eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    theirs = transformers_gpt(ours)
    for batch in goals:
        prompt = torch.randint(VOCABULARY, (batch, 4), device="cuda")
        length = 32 if quick else BLOCK - 4
        calls = {"heedful": lambda prompt=prompt, n=length: ours.generate(prompt, n, temperature=0)}
        if theirs is not None:
            theirs.eval()
            options = {"do_sample": False, "use_cache": True, "pad_token_id": 0, "eos_token_id": None,
                       "attention_mask": torch.ones_like(prompt), "max_new_tokens": length}  # fmt: skip
            calls["transformers"] = torch.inference_mode()(
                lambda prompt=prompt, options=options: theirs.generate(prompt, **options)
            )
        taken = {what: _wall(call, 2 if quick else 3) for what, call in calls.items()}
        row = {"batch": batch, "tokens/s": batch * length / taken["heedful"], "goal": goals[batch]}
        if theirs is not None:
            texts = torch.stack(calls["heedful"]()), calls["transformers"]()
            row |= {
                "transformers tokens/s": batch * length / taken["transformers"],
                "faster": taken["transformers"] / taken["heedful"],
                "same tokens": (texts[0] == texts[1]).float().mean().item(),
            }
        rows.append(row)
    if theirs is None:
        return rows, "transformers is not installed; nothing to compare with", None
    said = ", ".join(
        f"batch {row['batch']}: {row['faster']:.1f}× (goal {row['goal']}), {row['tokens/s']:,.0f} tokens/s"
        for row in rows
    )
    return rows, f"against transformers' generate, {said}", all(row["faster"] >= row["goal"] for row in rows)


def _wall(call, rounds: int) -> float:
    call()
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    return best
