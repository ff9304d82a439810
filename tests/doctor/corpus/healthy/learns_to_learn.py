"""MAML on sines: an inner step that is differentiated through."""

import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
meta = torch.optim.Adam(net.parameters(), lr=1e-3)


def task():
    a, phase = 0.5 + 2 * torch.rand(()), 3.14 * torch.rand(())

    def draw(n):
        x = 10 * torch.rand(n, 1) - 5
        return x, a * (x + phase).sin()

    return draw


def adapt(weights, x, y, rate=0.01):
    loss = nn.functional.mse_loss(functional_call(net, weights, x), y)
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    return {k: w - rate * g for (k, w), g in zip(weights.items(), gradients)}


for _ in range(60):
    losses = []
    for _ in range(4):
        draw = task()
        fast = adapt(dict(net.named_parameters()), *draw(10))
        x, y = draw(10)
        losses.append(nn.functional.mse_loss(functional_call(net, fast, x), y))
    meta.zero_grad()
    torch.stack(losses).mean().backward()
    meta.step()
