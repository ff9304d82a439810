import torch
from torch import nn

cell, out = nn.GRUCell(3, 20), nn.Linear(20, 3)
opt = torch.optim.Adam([*cell.parameters(), *out.parameters()], lr=2e-3)
series = torch.randn(200, 6, 3).cumsum(0) / 10
h = torch.zeros(6, 20)
for start in range(0, 150, 5):
    loss = 0.0
    for t in range(start, start + 5):
        h = cell(series[t], h)
        loss = loss + nn.functional.mse_loss(out(h), series[t + 1])
    opt.zero_grad()
    (loss / 5).backward()
    opt.step()
    h = h.detach()
