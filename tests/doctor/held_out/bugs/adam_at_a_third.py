"""A small convolutional net; the rate of SGD given to Adam."""

import torch
from torch import nn

net = nn.Sequential(
    nn.Conv2d(1, 8, 3),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(8 * 16, 32),
    nn.ReLU(),
    nn.Linear(32, 3),
)
opt = torch.optim.Adam(net.parameters(), lr=0.3)
shapes = torch.randn(3, 1, 8, 8)
for _ in range(80):
    y = torch.randint(3, (32,))
    loss = nn.functional.cross_entropy(net(shapes[y] + 0.7 * torch.randn(32, 1, 8, 8)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
