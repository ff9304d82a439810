import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, t / 10))
x = torch.randn(256, 10)
y = (x[:, 0] > x[:, 1]).long()
for _ in range(50):
    i = torch.randint(256, (32,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i]), y[i]).backward()
    optimizer.step()
    scheduler.step()
