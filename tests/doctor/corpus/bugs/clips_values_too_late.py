import torch
from torch import nn

m = nn.Linear(6, 2)
o = torch.optim.Adam(m.parameters(), 1e-3)
x = torch.randn(300, 6)
y = (x[:, 0] > 0).long()
for _ in range(30):
    i = torch.randint(300, (32,))
    o.zero_grad()
    nn.functional.cross_entropy(m(x[i]), y[i]).backward()
    o.step()
    torch.nn.utils.clip_grad_value_(m.parameters(), 0.5)
