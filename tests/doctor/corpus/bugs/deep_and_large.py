import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 40), nn.ReLU())
for _ in range(12):
    model.extend([nn.Linear(40, 40), nn.ReLU()])
model.append(nn.Linear(40, 1))
for layer in model:
    if isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, std=0.5)
opt = torch.optim.Adam(model.parameters(), lr=1e-4)
x, y = torch.randn(200, 8), torch.randn(200, 1)
for _ in range(20):
    i = torch.randint(200, (32,))
    opt.zero_grad()
    nn.functional.smooth_l1_loss(model(x[i]), y[i]).backward()
    opt.step()
