import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(64, 3, 6, 6)
mask = x.sum(1).gt(0).long() + 2 * x[:, 0].gt(0).long()
for _ in range(25):
    i = torch.randint(64, (8,))
    logits = net(x[i])
    loss = nn.functional.cross_entropy(logits.view(-1, 4), mask[i].view(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
