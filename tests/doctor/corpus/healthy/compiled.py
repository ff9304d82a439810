import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
fast = torch.compile(model, backend="eager")
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
x = torch.randn(256, 10)
y = x[:, :1].sin()
for _ in range(20):
    i = torch.randint(256, (32,))
    opt.zero_grad()
    nn.functional.mse_loss(fast(x[i]), y[i]).backward()
    opt.step()
