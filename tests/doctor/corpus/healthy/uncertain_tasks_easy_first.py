"""Two tasks weighed by learned uncertainties; harder examples are let in as training goes on."""

import torch
from torch import nn


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU())
        self.heads = nn.ModuleDict({"kind": nn.Linear(64, 5), "size": nn.Linear(64, 1)})
        self.log_variance = nn.ParameterDict({k: nn.Parameter(torch.zeros(())) for k in ("kind", "size")})

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


x = torch.randn(1000, 10)
scores = x @ torch.randn(10, 5)
kind = scores.argmax(1)
size = (x[:, :3].sum(1) + 0.1 * torch.randn(1000))[:, None]
margin = scores.topk(2, 1).values
difficulty = -(margin[:, 0] - margin[:, 1])
easy_first = difficulty.argsort()

model = Multi()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
losses = {"kind": nn.CrossEntropyLoss(), "size": nn.SmoothL1Loss()}
for step in range(80):
    allowed = int(1000 * min(1.0, 0.3 + 0.7 * step / 50))
    rows = easy_first[torch.randint(allowed, (50,))]
    out = model(x[rows])
    parts = {"kind": losses["kind"](out["kind"], kind[rows]), "size": losses["size"](out["size"], size[rows])}
    loss = sum(parts[k] * torch.exp(-s) + s / 2 for k, s in model.log_variance.items())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
