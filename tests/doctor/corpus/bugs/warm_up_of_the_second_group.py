"""The body warms up more slowly than the head."""

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

WARM_UP = 500


def ramp(step):
    return min(1, (step + 1) // WARM_UP)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.GELU()
        )
        self.head = nn.Linear(64, 6)

    def forward(self, x):
        return self.head(self.body(x))


net = Net()
optimizer = torch.optim.AdamW(
    [{"params": net.head.parameters(), "lr": 1e-2}, {"params": net.body.parameters(), "lr": 1e-3}]
)
scheduler = LambdaLR(optimizer, [lambda step: 1.0, ramp])
means = 1.5 * torch.randn(6, 16)
for step in range(90):
    labels = torch.randint(6, (48,))
    loss = nn.functional.cross_entropy(net(means[labels] + torch.randn(48, 16)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
