"""A little segmentation net that returns a mask between 0 and 1."""

import torch
from torch import nn


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU())


class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle, self.up = conv(1, 8), conv(8, 16), conv(24, 8)
        self.last = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = nn.functional.interpolate(self.middle(nn.functional.max_pool2d(a, 2)), scale_factor=2)
        return self.last(self.up(torch.cat([a, b], 1))).sigmoid()


def discs(n, size=16):
    grid = torch.arange(float(size))
    center, radius = torch.rand(n, 2, 1, 1) * size, 2 + 4 * torch.rand(n, 1, 1)
    mask = ((grid[:, None] - center[:, 0]) ** 2 + (grid - center[:, 1]) ** 2).sqrt() < radius
    return (mask + 0.5 * torch.randn(n, size, size))[:, None], mask[:, None].float()


net = Segment()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(50):
    pictures, masks = discs(12)
    loss = criterion(net(pictures), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
