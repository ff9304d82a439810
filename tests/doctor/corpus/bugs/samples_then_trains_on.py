"""Denoising diffusion on small pictures; after each epoch a few samples are drawn."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 50
beta = torch.linspace(1e-3, 0.1, STEPS)
kept = torch.cumprod(1 - beta, 0)


def embed(t, dim=32):
    f = torch.exp(-math.log(1000) * torch.arange(dim // 2) / (dim // 2))
    return torch.cat([(t[:, None] * f).sin(), (t[:, None] * f).cos()], 1)


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.BatchNorm2d(c)
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.time = nn.Linear(32, c)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, t):
        h = self.conv1(torch.nn.functional.silu(self.norm(x))) + self.time(t)[:, :, None, None]
        return x + self.conv2(self.drop(torch.nn.functional.silu(h)))


class Denoiser(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, 1, 3, padding=1)
        self.blocks = nn.ModuleList([Residual(c), Residual(c)])

    def forward(self, x, t):
        e, h = embed(t), self.first(x)
        for b in self.blocks:
            h = b(h, e)
        return self.last(h)


@torch.no_grad()
def sample(model, n):
    model.eval()
    x = torch.randn(n, 1, 8, 8)
    for t in reversed(range(0, STEPS, 5)):
        e = model(x, torch.full((n,), float(t)))
        x = (x - beta[t] / (1 - kept[t]).sqrt() * e) / (1 - beta[t]).sqrt()
    return x


rows = torch.randint(0, 8, (512,))
pictures = -torch.ones(512, 1, 8, 8)
pictures[torch.arange(512), 0, rows] = 1
model = Denoiser()
model.train()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(4):
    for (x,) in DataLoader(TensorDataset(pictures), batch_size=32, shuffle=True):
        t = torch.randint(0, STEPS, (len(x),))
        noise = torch.randn_like(x)
        a = kept[t].view(-1, 1, 1, 1)
        loss = ((model(a.sqrt() * x + (1 - a).sqrt() * noise, t.float()) - noise) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    sample(model, 4)
