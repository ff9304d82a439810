import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 3))
ema = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
x = torch.randn(400, 8)
y = x[:, :3].argmax(1)
for step in range(50):
    idx = torch.randint(0, 400, (40,))
    ema.zero_grad()  # meant the model
    loss = nn.CrossEntropyLoss()(model(x[idx]), y[idx])
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.lerp_(b, 0.1)
