import torch
from torch import nn

model = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(256, 20)
y = x[:, :1]
running = 0.0
for step in range(40):
    idx = torch.randint(256, (32,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[idx]), y[idx])
    loss.backward()
    optimizer.step()
    running += loss
print(running / 40)
