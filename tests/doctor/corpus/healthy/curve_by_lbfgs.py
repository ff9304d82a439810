"""Parameters of a curve by LBFGS with a strong Wolfe search."""

import torch
from torch import nn


class Decay(nn.Module):
    def __init__(self):
        super().__init__()
        self.amplitude, self.rate, self.offset = (nn.Parameter(torch.tensor(v)) for v in (1.0, 0.5, 0.0))

    def forward(self, t):
        return self.amplitude * torch.exp(-self.rate * t) + self.offset


t = torch.linspace(0, 5, 200)
y = 2.5 * torch.exp(-1.3 * t) + 0.4 + 0.02 * torch.randn(200)
model = Decay()
optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=10, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = (model(t) - y).pow(2).mean()
    loss.backward()
    return loss


for _ in range(10):
    print(optimizer.step(closure).item())
