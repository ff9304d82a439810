import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(256, 8)
y = (x[:, 0] * x[:, 1] > 0).long()
for _ in range(25):
    i = torch.randint(256, (32,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[i]), y[i]).backward()
    with torch.no_grad():
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm() + 1e-12
        away = [0.05 * p.grad / norm for p in model.parameters()]
        for p, e in zip(model.parameters(), away):
            p.add_(e)
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[i]), y[i]).backward()
    with torch.no_grad():
        for p, e in zip(model.parameters(), away):
            p.sub_(e)
    opt.step()
