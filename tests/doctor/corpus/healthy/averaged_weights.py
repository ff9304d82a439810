import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
x = torch.randn(400, 8)
y = x[:, :3].argmax(1)
for step in range(40):
    idx = torch.randint(0, 400, (40,))
    optimizer.zero_grad()
    nn.CrossEntropyLoss()(model(x[idx]), y[idx]).backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(average.parameters(), model.parameters()):
            a.lerp_(b, 0.05)
