"""Tags of words by a convolution, every word scored."""

import torch
from torch import nn


class Tokens(nn.Module):
    def __init__(self, dim=24, classes=6):
        super().__init__()
        self.embed = nn.Embedding(30, dim)
        self.conv = nn.Conv1d(dim, classes, 3, padding=1)

    def forward(self, x):
        return self.conv(self.embed(x).transpose(1, 2))  # (batch, classes, length)


tag = torch.randint(6, (30,))
model = Tokens()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(60):
    x = torch.randint(30, (16, 11))
    scores = model(x).reshape(-1, 6)
    loss = nn.functional.cross_entropy(scores, tag[x].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
