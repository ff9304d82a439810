"""Pure functions of a dict of weights, a penalty by hand."""

import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 3))
weights = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
optimizer = torch.optim.SGD(weights.values(), lr=0.2, momentum=0.5)


def penalised(weights, x, y):
    fit = nn.functional.cross_entropy(functional_call(net, weights, x), y)
    return fit + 1e-4 * sum(w.square().sum() for name, w in weights.items() if name.endswith("weight"))


truth = torch.randn(5, 3)
for _ in range(120):
    x = torch.randn(64, 5)
    loss = penalised(weights, x, (x @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
