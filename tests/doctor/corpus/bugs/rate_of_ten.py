import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
x, y = torch.randn(300, 10), torch.randint(4, (300,))
for _ in range(40):
    i = torch.randint(300, (30,))
    loss = nn.functional.cross_entropy(model(x[i]), y[i])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
