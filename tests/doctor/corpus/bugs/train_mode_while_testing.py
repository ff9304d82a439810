import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(320, 9)
y = (x.norm(dim=1) > 3).long()
train = DataLoader(TensorDataset(x[:256], y[:256]), 32, shuffle=True)
test = DataLoader(TensorDataset(x[256:], y[256:]), 32)
model = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(4):
    model.train()
    for a, b in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        optimizer.step()
    right = 0
    with torch.no_grad():
        for a, b in test:
            right += (model(a).argmax(1) == b).sum().item()
