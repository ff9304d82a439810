"""Weight-normalised dilated convolutions forecast three quantiles of a noisy series."""

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, Dataset

QUANTILES = torch.tensor([0.1, 0.5, 0.9])


class Windows(Dataset):
    def __init__(self, length=48, count=640):
        t = torch.arange(count + length + 1).float()
        self.series = torch.sin(t / 7) + 0.5 * torch.sin(t / 3) + 0.2 * torch.randn_like(t)
        self.length, self.count = length, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.series[i : i + self.length][None], self.series[i + 1 : i + 1 + self.length]


class Causal(nn.Module):
    def __init__(self, a, b, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = weight_norm(nn.Conv1d(a, b, 3, dilation=dilation))
        self.skip = nn.Conv1d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x):
        return torch.relu(self.conv(nn.functional.pad(x, (self.pad, 0)))) + self.skip(x)


model = nn.Sequential(
    Causal(1, 24, 1), Causal(24, 24, 2), Causal(24, 24, 4), Causal(24, 24, 8), nn.Conv1d(24, 3, 1)
)


def pinball(prediction, truth):
    error = truth[:, None] - prediction  # (batch, quantiles, time)
    q = QUANTILES[None, :, None]
    return torch.maximum(q * error, (q - 1) * error).mean()


optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for epoch in range(3):
    total = 0.0
    for x, y in DataLoader(Windows(), batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = pinball(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total)
