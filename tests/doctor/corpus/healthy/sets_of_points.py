"""Deep sets with masks: the sum of a function of every member."""

import torch
from torch import nn


class DeepSets(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48))
        self.rho = nn.Sequential(nn.Linear(49, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, points, mask):
        h = (self.phi(points) * mask[..., None]).sum(1)
        count = mask.sum(1, keepdim=True)
        return self.rho(torch.cat([h / count, count / 10], -1)).squeeze(-1)


model = DeepSets()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(120):
    points = torch.randn(32, 10, 2)
    mask = (torch.arange(10) < torch.randint(2, 11, (32, 1))).float()
    spread = ((points.norm(dim=-1)) * mask).sum(1) / mask.sum(1)
    loss = nn.functional.mse_loss(model(points, mask), spread)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
