import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
x = torch.randn(250, 6)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True) / 3), batch_size=10, shuffle=True)
every = 4
for epoch in range(3):
    for i, (a, b) in enumerate(loader):
        loss = nn.functional.mse_loss(net(a), b) / every
        loss.backward()
        if (i + 1) % every == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()
