"""Pictures and captions embedded by two encoders, symmetric cross-entropy, a learned temperature."""

import math

import torch
from torch import nn

N, VOCAB, LENGTH = 400, 30, 6
concept = torch.randn(N, 12)
pictures = concept @ torch.randn(12, 48) + 0.1 * torch.randn(N, 48)
captions = (concept[:, :LENGTH] * 5 + 15).long().clamp(0, VOCAB - 1)


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(48, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 32))

    def forward(self, x):
        return nn.functional.normalize(self.body(x), dim=-1)


class Caption(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCAB, 32)
        self.place = nn.Parameter(torch.randn(LENGTH, 32) * 0.02)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(32, 32)

    def forward(self, t):
        return nn.functional.normalize(self.out(self.layer(self.word(t) + self.place).mean(1)), dim=-1)


picture, caption = Picture(), Caption()
temperature = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
decay, plain = [], []
for module in (picture, caption):
    for p in module.parameters():
        (decay if p.ndim > 1 else plain).append(p)
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": plain + [temperature], "weight_decay": 0.0}], lr=1e-3
)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
for epoch in range(10):
    order = torch.randperm(N)
    for rows in order.split(64)[:6]:
        a, b = picture(pictures[rows]), caption(captions[rows])
        logits = temperature.exp().clamp(max=100) * a @ b.T
        truth = torch.arange(len(rows))
        loss = (nn.functional.cross_entropy(logits, truth) + nn.functional.cross_entropy(logits.T, truth)) / 2
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
