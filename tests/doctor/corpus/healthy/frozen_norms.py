import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
x, y = torch.randn(100, 1, 6, 6), torch.randint(3, (100,))


def freeze(module):
    if isinstance(module, nn.BatchNorm2d):
        module.eval()


for _ in range(25):
    net.train()
    net.apply(freeze)
    i = torch.randint(100, (20,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x[i]), y[i]).backward()
    opt.step()
