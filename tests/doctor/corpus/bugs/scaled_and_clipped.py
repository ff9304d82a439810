"""Mixed precision in a class."""

import torch
from torch import nn


class Precision:
    def __init__(self, enabled=True):
        self.scaler = torch.amp.GradScaler("cpu", enabled=enabled, init_scale=1024.0)

    def context(self):
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def update(self, loss, optimizer, parameters, clip):
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(parameters, clip)
        self.scaler.step(optimizer)
        self.scaler.update()


encoder = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 8))
decoder = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 32))
both = [*encoder.parameters(), *decoder.parameters()]
adam = torch.optim.Adam(both, lr=2e-3)
precision = Precision()
mixing = torch.randn(6, 32)
for _ in range(60):
    x = torch.randn(64, 6) @ mixing
    adam.zero_grad()
    with precision.context():
        y = decoder(encoder(x))
    precision.update((y.float() - x).square().mean(), adam, both, 1.0)
