"""Sampling of weights: a gradient step and noise."""

import torch
from torch import nn


class Langevin(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"]).add_((2 * group["lr"]) ** 0.5 * torch.randn_like(p))


model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
sampler = Langevin(model.parameters())
x = torch.randn(256, 6)
y = x[:, :1].sin()
for _ in range(80):
    i = torch.randint(256, (32,))
    loss = (model(x[i]) - y[i]).pow(2).mean()
    sampler.zero_grad()
    loss.backward()
    sampler.step()
