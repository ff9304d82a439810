import copy

import torch
import torch.nn.functional as F
from torch import nn

online = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
predictor = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
momentum = copy.deepcopy(online)
for p in momentum.parameters():
    p.requires_grad_(False)
opt = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05)
x = torch.randn(200, 12)
for _ in range(25):
    batch = x[torch.randint(200, (32,))]
    a, b = batch + 0.1 * torch.randn_like(batch), batch + 0.1 * torch.randn_like(batch)
    with torch.no_grad():
        goal = momentum(b)
    loss = -F.cosine_similarity(predictor(online(a)), goal).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, q in zip(momentum.parameters(), online.parameters()):
            p.lerp_(q, 0.01)
