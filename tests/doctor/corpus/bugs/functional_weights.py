"""Weights in a dict, the model as a pure function of them."""

import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
params = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
opt = torch.optim.Adam(params.values(), lr=1e-3)


def objective(params, x, y):
    return (functional_call(net, params, (x,)) - y).pow(2).mean()


def truth(x):
    return torch.sin(2 * x[:, :1]) * x[:, 1:2] + x[:, 2:]


for it in range(120):
    x = torch.randn(64, 3)
    value = objective(params, x, truth(x))
    value.backward()
    opt.step()
    if it % 40 == 0:
        print(it, float(value))
