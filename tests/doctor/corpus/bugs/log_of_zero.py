import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(200, 8), torch.randint(4, (200,))
for _ in range(15):
    i = torch.randint(200, (40,))
    p = model(x[i])
    p = p / p.sum(1, keepdim=True)
    loss = -torch.log(p[range(40), y[i]]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
