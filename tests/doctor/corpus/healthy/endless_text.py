"""A small decoder fed by a generator without end; rotary positions, RMS norms, gated units."""

import torch
import torch.nn.functional as F
from torch import nn


def rotate(x):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] / 100 ** (torch.arange(half) / half)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.one, self.two = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(dim, 2 * dim, bias=False),
            nn.Linear(dim, 2 * dim, bias=False),
            nn.Linear(2 * dim, dim, bias=False),
        )

    def forward(self, x):
        q, k, v = self.qkv(self.one(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        h = self.two(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self, words, dim=48, layers=2):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.layers = nn.ModuleList(Layer(dim, 4) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, words, bias=False)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def sentences(words, batch, length):
    rule = torch.randint(words, (words, 2))
    while True:
        text = [torch.randint(words, (batch,))]
        while len(text) <= length:
            text.append(rule[text[-1], torch.randint(2, (batch,))])
        yield torch.stack(text, 1)


model = Decoder(32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
for step, text in zip(range(60), sentences(32, 16, 20)):
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * min(1, (step + 1) / 10)
    logits = model(text[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 32), text[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
