import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
nn.init.normal_(model[2].weight, std=5.0)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
x, y = torch.randn(256, 16), torch.randint(10, (256,))
for _ in range(30):
    k = torch.randint(256, (64,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[k]), y[k]).backward()
    opt.step()
