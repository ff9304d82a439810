import torch
from torch import nn

layers = [nn.Linear(10, 32), nn.Sigmoid()]
for _ in range(10):
    layers += [nn.Linear(32, 32), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(256, 10)
y = x[:, :3].argmax(1)
for _ in range(30):
    i = torch.randint(256, (32,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i]), y[i]).backward()
    optimizer.step()
