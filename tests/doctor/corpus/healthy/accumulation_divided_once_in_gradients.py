import torch
from torch import nn

net = nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(300, 7)
y = (x[:, 0] > 0).long()
k = 5
for _ in range(15):
    opt.zero_grad()
    for _ in range(k):
        i = torch.randint(300, (12,))
        nn.functional.cross_entropy(net(x[i]), y[i]).backward()
    for p in net.parameters():
        p.grad.div_(k)
    opt.step()
