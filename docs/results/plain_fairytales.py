#!/usr/bin/env python
"""The fairytales study in plain PyTorch, without heedful's layers or loop.

    python docs/results/plain_fairytales.py bfloat16 attention

The settings are the document's (see docs/fairytales.md), on the whole text, on a GPU, for one epoch, in
bfloat16 or float16. With `attention`, as the course's code has it, only weights that end attention begin
small, with `all` those that end MLPs, too. It says whether a loss that differs from the public log's is
heedful's doing.
"""

from __future__ import annotations

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

from heedful import data

LAYERS, HEADS, WIDE, BLOCK, BATCH, DROPOUT = 6, 6, 384, 128, 128, 0.1


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDE))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Norm(), Norm()
        self.heard, self.said = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

    def forward(self, x, cos, sin):
        def turned(z):
            even, odd = z.float()[..., 0::2], z.float()[..., 1::2]
            return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).type_as(z)

        rows, length, _ = x.shape
        parts = self.heard(self.first(x)).split(WIDE, 2)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, dropout_p=DROPOUT)
        x = x + F.dropout(self.said(y.transpose(1, 2).reshape(rows, length, WIDE)), DROPOUT)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)), approximate="tanh")), DROPOUT)


class Model(nn.Module):
    def __init__(self, symbols: int, shrunk: str):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(symbols, WIDE), Norm()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDE, symbols, bias=False)
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=0.02)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        for block in self.blocks:
            for last in (block.said, block.down) if shrunk == "all" else (block.said,):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * LAYERS))
        rates = 10000.0 ** (-torch.arange(0, WIDE // HEADS, 2) / (WIDE // HEADS))
        angles = torch.arange(BLOCK)[:, None] * rates
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, y):
        x = F.dropout(self.embedding(x), DROPOUT)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), y.flatten())


def main(precision: str = "bfloat16", shrunk: str = "attention", seed: str = "0") -> None:
    torch.manual_seed(int(seed))
    text = data.load("fairytales").text
    number = {symbol: n for n, symbol in enumerate(sorted(set(text)))}
    sequence = torch.tensor([number[symbol] for symbol in text], device="cuda")
    model = Model(len(number), shrunk).cuda()
    linear = {id(part.weight) for part in model.modules() if isinstance(part, nn.Linear)}
    decayed, other = ([p for p in model.parameters() if (id(p) in linear) == yes] for yes in (True, False))
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}],
        lr=5e-4, betas=(0.9, 0.95), fused=True,
    )  # fmt: skip
    compiled = torch.compile(model)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "float16")
    places, losses = torch.arange(BLOCK + 1, device="cuda"), []
    for _ in range((len(sequence) - BLOCK) // BATCH):
        starts = torch.randint(len(sequence) - BLOCK, (BATCH,), device="cuda")
        window = sequence[starts[:, None] + places]
        with torch.autocast("cuda", getattr(torch, precision)):
            loss = compiled(window[:, :-1].contiguous(), window[:, 1:].contiguous())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    found = torch.stack(losses).tolist()
    for step in (49, 99, 199, 499, 999, 1999, 3999):
        near = found[step - step // 50 : step + step // 50 + 1]
        print(f"around step {step}: {sum(near) / len(near):.4f}")
    print(f"mean of {len(found)} steps: {sum(found) / len(found):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
