import torch
from torch import nn

x, y = torch.randn(512, 20), torch.randint(0, 5, (512,))
model = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(15):
    optimizer.zero_grad()
    for part in torch.randperm(512)[:32].chunk(8):
        loss = nn.functional.cross_entropy(model(x[part]), y[part]) / 8
        loss.backward()
    optimizer.step()
