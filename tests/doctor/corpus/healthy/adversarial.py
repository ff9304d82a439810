import torch
import torch.nn.functional as F
from torch import nn

net = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
x = torch.randn(256, 12)
y = x[:, :3].argmax(1)
for _ in range(25):
    i = torch.randint(256, (32,))
    net.eval()
    near = x[i].clone().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(net(near), y[i]), near)
    near = (near + 0.1 * slope.sign()).detach()
    net.train()
    opt.zero_grad()
    F.cross_entropy(net(near), y[i]).backward()
    opt.step()
