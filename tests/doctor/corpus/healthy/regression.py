import torch
from torch import nn

x = torch.randn(256, 8)
y = x[:, :1] * x[:, 1:2]
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(40):
    i = torch.randint(256, (32,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[i]), y[i])
    loss.backward()
    optimizer.step()
