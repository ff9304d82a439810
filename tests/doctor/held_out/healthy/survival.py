"""Cox's partial likelihood: every event against those still at risk."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1, bias=False))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
for _ in range(90):
    x = torch.randn(48, 5)
    time = torch.distributions.Exponential((x[:, 0] - x[:, 1]).exp()).sample()
    event = (torch.rand(48) < 0.7).float()
    risk = net(x)[:, 0]
    at_risk = (time[None, :] >= time[:, None]).float()
    log_sum = (at_risk * risk.exp()).sum(1).log()
    loss = -((risk - log_sum) * event).sum() / event.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
