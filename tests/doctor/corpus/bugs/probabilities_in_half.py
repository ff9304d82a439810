"""Weighted classes under bfloat16, the model returns a dict."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(24, 64), nn.LayerNorm(64), nn.SiLU())
        self.heads = nn.ModuleDict({"kind": nn.Linear(64, classes)})

    def forward(self, x):
        h = self.trunk(x)
        return {name: torch.softmax(head(h), dim=1) for name, head in self.heads.items()}


weight = torch.tensor([1.0, 1.0, 2.0, 2.0, 0.5])
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
centers = 1.5 * torch.randn(5, 24)
for _ in range(80):
    y = torch.randint(5, (40,))
    with torch.autocast("cpu", torch.bfloat16):
        out = model(centers[y] + torch.randn(40, 24))
        loss = nn.functional.cross_entropy(out["kind"].float(), y, weight=weight, label_smoothing=0.05)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
