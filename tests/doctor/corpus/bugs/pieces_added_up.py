import torch
from torch import nn

x = torch.randn(512, 16)
y = (x.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(20):
    optimizer.zero_grad()
    for micro in torch.randperm(512)[:64].chunk(4):
        loss = nn.functional.cross_entropy(model(x[micro]), y[micro])
        loss.backward()
    optimizer.step()
