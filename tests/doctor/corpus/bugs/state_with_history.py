import torch
from torch import nn

embed = nn.Linear(12, 6)
opt = torch.optim.SGD(embed.parameters(), lr=0.01)
x = torch.randn(256, 12)
centre = torch.zeros(6)
for step in range(24):
    z = embed(x[torch.randint(256, (32,))])
    centre = 0.9 * centre + 0.1 * z.mean(0)  # carries every step before it along
    loss = (z - centre).pow(2).mean() + (z.std(0) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward(retain_graph=True)
    opt.step()
