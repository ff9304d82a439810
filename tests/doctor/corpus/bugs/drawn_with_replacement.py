"""Windows of a series; both sets are drawn from all windows."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Windows(Dataset):
    def __init__(self, series, length):
        self.series, self.length = series, length

    def __len__(self):
        return len(self.series) - self.length

    def __getitem__(self, i):
        return self.series[i : i + self.length], self.series[i + self.length]


t = torch.arange(500.0)
series = (t / 7).sin() + (t / 11).cos() + 0.1 * torch.randn(500)
windows = Windows(series, 20)
train = Subset(windows, torch.randint(len(windows), (384,)).tolist())
valid = Subset(windows, torch.randint(len(windows), (96,)).tolist())
model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 1), nn.Flatten(0))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(5):
    model.train()
    for x, y in DataLoader(train, 16, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        errors = [nn.functional.mse_loss(model(x), y) for x, y in DataLoader(valid, 32)]
    print(epoch, torch.stack(errors).mean().item())
