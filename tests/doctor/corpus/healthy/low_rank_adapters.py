"""A frozen pretrained net learns a new task through low-rank adapters and a new head."""

import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear, rank=4, alpha=8):
        super().__init__()
        self.base = base
        self.base.weight.requires_grad = False
        self.base.bias.requires_grad = False
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.a.T @ self.b.T) * self.scale


def pretrain():
    net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
    teacher = torch.randn(16, 4)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(40):
        x = torch.randn(64, 16)
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), (x @ teacher).argmax(1)).backward()
        opt.step()
    return net


net = pretrain()
net[0], net[2] = LoRA(net[0]), LoRA(net[2])
net[4] = nn.Linear(64, 3)
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=3e-3)
print(sum(p.numel() for p in net.parameters() if p.requires_grad), "trainable")
task = torch.randn(16, 3)
for step in range(50):
    x = torch.randn(64, 16)
    loss = nn.functional.cross_entropy(net(x), (x @ task).argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
