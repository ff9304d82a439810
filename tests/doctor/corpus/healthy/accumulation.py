import torch
from torch import nn

x, y = torch.randn(512, 16), torch.randint(5, (512,))
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    for micro in torch.randperm(512)[:64].chunk(4):
        loss = nn.functional.cross_entropy(model(x[micro]), y[micro])
        (loss / 4).backward()
    optimizer.step()
