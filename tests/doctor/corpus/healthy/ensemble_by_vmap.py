"""Five nets trained at once: parameters stacked, the forward pass mapped over them."""

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

nets = [nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)) for _ in range(5)]
params, buffers = stack_module_state(nets)
params = {k: v.detach().requires_grad_() for k, v in params.items()}
base = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)).to("meta")


def one(p, b, x):
    return functional_call(base, (p, b), (x,))


optimizer = torch.optim.Adam(params.values(), lr=5e-3)
x = torch.rand(300, 4) * 2 - 1
y = torch.sin(3 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
for step in range(70):
    rows = torch.randint(300, (5, 32))
    out = vmap(one)(params, buffers, x[rows])
    loss = ((out - y[rows]) ** 2).mean(dim=(1, 2)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
