"""Training on chunks of a long table, by an index that is reset."""

import torch
from torch import nn

table = torch.randn(1000, 10)
answer = (table @ torch.randn(10, 3)).argmax(1)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)


def chunk(k, size=50):
    k = k % (size // 50)
    return table[k * size : (k + 1) * size], answer[k * size : (k + 1) * size]


for step in range(80):
    x, y = chunk(step)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
