import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x, val = torch.randn(256, 10), torch.randn(64, 10)
y, val_y = (x[:, 0] > 0).long(), (val[:, 0] > 0).long()


def validate():
    model.eval()
    with torch.no_grad():
        return (model(val).argmax(1) == val_y).float().mean().item()


model.train()
for epoch in range(6):
    for part in torch.randperm(256).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[part]), y[part]).backward()
        optimizer.step()
    validate()
