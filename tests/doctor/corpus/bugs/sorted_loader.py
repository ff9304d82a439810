import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

centres = torch.randn(8, 10)
y = torch.arange(8).repeat_interleave(64)
x = centres[y] + 0.5 * torch.randn(512, 10)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
opt = torch.optim.SGD(model.parameters(), lr=0.02)
for epoch in range(3):
    for a, b in DataLoader(TensorDataset(x, y), batch_size=32):
        opt.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        opt.step()
