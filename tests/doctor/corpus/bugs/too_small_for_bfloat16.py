import torch
from torch import nn

net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
for p in net.parameters():
    nn.init.constant_(p, 0.3) if p.dim() == 1 else nn.init.uniform_(p, 0.2, 0.4)
net = net.to(torch.bfloat16)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
x, y = torch.randn(128, 16, dtype=torch.bfloat16), torch.randint(4, (128,))
for _ in range(20):
    i = torch.randint(128, (32,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x[i]), y[i]).backward()
    optimizer.step()
