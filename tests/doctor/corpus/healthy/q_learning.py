import copy

import torch
from torch import nn

q = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
target = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
state, action = torch.randn(400, 10), torch.randint(3, (400, 1))
reward, after = torch.randn(400), torch.randn(400, 10)
for step in range(40):
    i = torch.randint(400, (32,))
    with torch.no_grad():
        goal = reward[i] + 0.9 * target(after[i]).max(1).values
    loss = nn.functional.smooth_l1_loss(q(state[i]).gather(1, action[i]).squeeze(1), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        target.load_state_dict(q.state_dict())
