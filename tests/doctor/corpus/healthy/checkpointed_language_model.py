"""A small GPT: RMSNorm, rotary positions, recomputed blocks, accumulation, a schedule written by hand."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

V, T, C, H, L = 27, 32, 48, 4, 3
text = torch.tensor([(i * i + 3 * i // 2) % 11 + (i % 5) for i in range(4000)]) % V


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Parameter(torch.ones(C))

    def forward(self, x):
        return self.g * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotate(x):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] / 1000 ** (torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = Norm(), Norm()
        self.qkv, self.o = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        self.gate, self.up, self.down = nn.Linear(C, 2 * C), nn.Linear(C, 2 * C), nn.Linear(2 * C, C)

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, C))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, C)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
        self.norm = Norm()
        nn.init.normal_(self.emb.weight, std=0.02)

    def forward(self, t, y=None):
        x = self.emb(t)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        logits = self.norm(x) @ self.emb.weight.T
        return logits, None if y is None else F.cross_entropy(logits.view(-1, V), y.view(-1))


def rate(step, top=3e-3, warm=5, total=40):
    return (
        top * step / warm
        if step < warm
        else top * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))
    )


net = GPT()
optim = torch.optim.AdamW(net.parameters(), lr=3e-3, betas=(0.9, 0.95))
micro = 2
for step in range(1, 40):
    for group in optim.param_groups:
        group["lr"] = rate(step)
    for _ in range(micro):
        starts = torch.randint(len(text) - T - 1, (8,))
        x = torch.stack([text[i : i + T] for i in starts])
        y = torch.stack([text[i + 1 : i + T + 1] for i in starts])
        _, loss = net(x, y)
        (loss / micro).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optim.step()
    optim.zero_grad(set_to_none=True)
