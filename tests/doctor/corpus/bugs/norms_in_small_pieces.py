"""Large effective batches on a small machine."""

import torch
from torch import nn


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(block(1, 8), block(8, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def stripes(n):
    y = torch.randint(4, (n,))
    grid = torch.stack(torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij"))
    way = torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, -1]])[y]
    x = torch.sin(torch.einsum("nd,dhw->nhw", way, grid) + 6.3 * torch.rand(n, 1, 1))
    return x[:, None] + 0.5 * torch.randn(n, 1, 12, 12), y


def micro_batches(n, size):
    x, y = stripes(n)
    yield from zip(x.split(size), y.split(size))


model = Small()
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for update in range(25):
    sgd.zero_grad()
    for x, y in micro_batches(32, 2):
        loss = nn.functional.cross_entropy(model(x), y) * len(x) / 32
        loss.backward()
    sgd.step()
