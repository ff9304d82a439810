import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

data = TensorDataset(torch.randn(300, 12), torch.randn(300, 1))
train, test = Subset(data, range(0, 220)), Subset(data, range(180, 300))
net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for epoch in range(4):
    net.train()
    for a, b in DataLoader(train, 20, shuffle=True):
        opt.zero_grad()
        nn.functional.mse_loss(net(a), b).backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        total = sum(nn.functional.mse_loss(net(a), b).item() for a, b in DataLoader(test, 40))
