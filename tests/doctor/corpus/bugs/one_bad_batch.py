import torch
from torch import nn

model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(400, 6)
y = x[:, :1] - x[:, 1:2]
for step in range(50):
    i = torch.randint(400, (40,))
    batch = x[i] * (300 if step == 33 else 1)  # another unit in one file
    opt.zero_grad()
    nn.functional.mse_loss(model(batch), y[i]).backward()
    opt.step()
