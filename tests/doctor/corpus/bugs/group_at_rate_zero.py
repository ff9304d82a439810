import torch
from torch import nn

trunk, head = nn.Linear(10, 20), nn.Linear(20, 2)
optimizer = torch.optim.SGD(
    [{"params": trunk.parameters(), "lr": 0.0}, {"params": head.parameters()}], lr=0.05
)
x = torch.randn(300, 10)
y = (x[:, 0] > x[:, 1]).long()
for _ in range(30):
    b = torch.randint(300, (30,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(head(torch.relu(trunk(x[b]))), y[b]).backward()
    optimizer.step()
