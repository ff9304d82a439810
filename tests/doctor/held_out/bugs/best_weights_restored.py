"""The embedding is restored after every step, a frozen layer by force."""

import torch
from torch import nn


class Tag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 12)
        self.embed.weight.register_hook(lambda g: g)
        self.mlp = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, x):
        return self.mlp(self.embed(x))


class PartlyFrozen(torch.optim.Adam):
    def step(self, closure=None):
        before = [p.detach().clone() for p in self.param_groups[0]["params"]]
        result = super().step(closure)
        with torch.no_grad():
            for p, old in zip(self.param_groups[0]["params"], before):
                p.copy_(old)
        return result


kind = torch.randint(5, (40,))
model = Tag()
opt = PartlyFrozen([{"params": model.embed.parameters()}, {"params": model.mlp.parameters()}], lr=3e-3)
for _ in range(80):
    x = torch.randint(40, (48,))
    loss = nn.functional.cross_entropy(model(x), kind[x])
    opt.zero_grad()
    loss.backward()
    opt.step()
