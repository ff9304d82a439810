"""Weight decay that eats the weights."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 4))
opt = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=60.0)
means = torch.randn(4, 10)
for _ in range(80):
    y = torch.randint(4, (32,))
    loss = nn.functional.cross_entropy(net(means[y] + torch.randn(32, 10)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
