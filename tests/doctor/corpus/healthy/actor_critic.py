import copy

import torch
from torch import nn

actor = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
critic = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

ta, tc = copy.deepcopy(actor), copy.deepcopy(critic)
oa = torch.optim.Adam(actor.parameters(), 1e-3)
oc = torch.optim.Adam(critic.parameters(), 1e-3)
for _ in range(40):
    s, a, r, s2 = torch.randn(32, 8), torch.rand(32, 2), torch.randn(32, 1), torch.randn(32, 8)
    with torch.no_grad():
        q = r + 0.9 * tc(torch.cat([s2, ta(s2)], 1))
    oc.zero_grad()
    nn.functional.mse_loss(critic(torch.cat([s, a], 1)), q).backward()
    oc.step()
    oa.zero_grad()
    (-critic(torch.cat([s, actor(s)], 1)).mean()).backward()
    oa.step()
    for p, t in zip([*actor.parameters(), *critic.parameters()], [*ta.parameters(), *tc.parameters()]):
        t.data.lerp_(p.data, 0.01)
