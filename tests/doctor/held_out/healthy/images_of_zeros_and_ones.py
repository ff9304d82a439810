"""Binary pictures, a small convolutional net, train and test of the same few shapes."""

import torch
from torch import nn

shapes = (torch.rand(6, 1, 8, 8) < 0.4).float()


def draw(n):
    y = torch.randint(6, (n,))
    flip = (torch.rand(n, 1, 8, 8) < 0.08).float()
    return (shapes[y] - flip).abs(), y


(x, y), (t, z) = draw(600), draw(120)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(72, 6)
)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(4):
    net.train()
    for i in torch.randperm(600).split(30):
        opt.zero_grad()
        nn.functional.cross_entropy(net(x[i]), y[i]).backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        print((net(t).argmax(1) == z).float().mean().item())
