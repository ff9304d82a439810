import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.BCEWithLogitsLoss()
x = torch.randn(256, 8)
y = (x.sum(1, keepdim=True) > 0).float()
for _ in range(30):
    i = torch.randint(256, (32,))
    optimizer.zero_grad()
    loss_fn(model(x[i]), y[i]).backward()
    optimizer.step()
