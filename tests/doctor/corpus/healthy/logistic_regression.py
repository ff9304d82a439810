import torch
from torch import nn

m = nn.Linear(12, 1)
o = torch.optim.SGD(m.parameters(), 0.1)
x = torch.randn(500, 12)
y = (x[:, 0] + 0.5 * torch.randn(500) > 0).float()
for ep in range(4):
    tot = 0
    for p in torch.randperm(500).split(25):
        l = nn.functional.binary_cross_entropy_with_logits(m(x[p]).squeeze(1), y[p])
        o.zero_grad()
        l.backward()
        o.step()
        tot += l.detach()
