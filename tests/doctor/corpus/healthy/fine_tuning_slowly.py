import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
x = torch.randn(300, 10)
y = x[:, :3].argmax(1)


def epochs(rate, count):
    opt = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(count):
        for part in torch.randperm(300).split(60):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            opt.step()


epochs(1e-2, 6)
epochs(1e-4, 4)
