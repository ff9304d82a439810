import torch
from torch import nn


def block(width):
    return nn.Sequential(nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())


model = nn.Sequential(nn.Linear(10, 32), *[block(32) for _ in range(50)], nn.Linear(32, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x, y = torch.randn(256, 10), torch.randint(4, (256,))
for _ in range(12):
    k = torch.randint(256, (32,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[k]), y[k]).backward()
    opt.step()
