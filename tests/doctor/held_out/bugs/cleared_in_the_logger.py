"""Norms of gradients are logged, and tidied up."""

import torch
from torch import nn


def gradient_norms(model, keep):
    norms = {name: float(p.grad.norm()) for name, p in model.named_parameters() if p.grad is not None}
    if not keep:
        model.zero_grad()
    return norms


net = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 2))
opt = torch.optim.Adagrad(net.parameters(), lr=0.05)
log = []
for _ in range(70):
    x = torch.randn(32, 4)
    loss = nn.functional.mse_loss(net(x), torch.stack([x.sum(1), x.prod(1)], 1))
    loss.backward()
    log.append(gradient_norms(net, keep=False))
    opt.step()
