"""Normalised layers with a large rate and a large weight decay: every step replaces most of the weights."""

import torch
from torch import nn
from torch.nn import functional as F


class Cosine(nn.Module):
    def __init__(self, inputs, classes, scale=0.7):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, inputs))
        self.scale = scale

    def forward(self, x):
        return self.scale * F.normalize(x, dim=1) @ F.normalize(self.weight, dim=1).T


def block(i, o):
    return nn.Sequential(nn.Linear(i, o, bias=False), nn.LayerNorm(o, elementwise_affine=False), nn.Tanh())


x = torch.randn(800, 16)
y = (x[:, :2] * x[:, 2:4]).sum(1).gt(0).long() + 2 * (x[:, 4] * x[:, 5]).gt(0).long()
model = nn.Sequential(block(16, 48), block(48, 48), Cosine(48, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=2.0, weight_decay=0.45)
for step in range(80):
    rows = torch.randint(800, (50,))
    loss = F.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
