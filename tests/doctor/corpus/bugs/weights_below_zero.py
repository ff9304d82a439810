"""Weights drawn between -a and 0 by a slip of the bounds."""

import torch
from torch import nn


class Layer(nn.Linear):
    def reset_parameters(self):
        bound = self.in_features**-0.5
        nn.init.uniform_(self.weight, -bound, 0.0)
        nn.init.zeros_(self.bias)


net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), Layer(64, 64), nn.ReLU(), nn.Linear(64, 4))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
w = torch.randn(12, 4)
for _ in range(80):
    x = torch.rand(32, 12)
    loss = nn.functional.cross_entropy(net(x), ((x - 0.5) @ w).argmax(1))
    adam.zero_grad()
    loss.backward()
    adam.step()
