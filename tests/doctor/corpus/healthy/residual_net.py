import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.f = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        )

    def forward(self, x):
        return x + self.f(x)


model = nn.Sequential(nn.Linear(10, 32), *[Block(32) for _ in range(16)], nn.LayerNorm(32), nn.Linear(32, 3))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(200, 10)
y = x[:, :3].argmax(1)
for _ in range(25):
    k = torch.randint(200, (40,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[k]), y[k]).backward()
    opt.step()
