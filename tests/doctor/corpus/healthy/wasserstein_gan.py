import torch
from torch import nn

gen = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8))
critic = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
og, oc = torch.optim.RMSprop(gen.parameters(), 1e-4), torch.optim.RMSprop(critic.parameters(), 1e-4)
data = torch.randn(200, 8)
for step in range(10):
    for _ in range(3):
        x = data[torch.randint(200, (16,))]
        with torch.no_grad():
            fake = gen(torch.randn(16, 3))
        mix = torch.rand(16, 1)
        between = (mix * x + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
        oc.zero_grad()
        (critic(fake).mean() - critic(x).mean() + 10 * penalty).backward()
        oc.step()
    og.zero_grad()
    (-critic(gen(torch.randn(16, 3))).mean()).backward()
    og.step()
