"""A VAE that draws samples every few steps and forgets to return to training."""

import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(20, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 8))
        self.decode = nn.Sequential(nn.Linear(4, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 20))

    def forward(self, x):
        mean, log_var = self.encode(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (log_var / 2).exp()
        return self.decode(z), mean, log_var

    @torch.no_grad()
    def sample(self, n):
        self.eval()
        return self.decode(torch.randn(n, 4))


mix = torch.randn(4, 20)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=2e-3)
for step in range(80):
    x = torch.randn(48, 4) @ mix
    out, mean, log_var = vae(x)
    loss = (out - x).pow(2).sum(1).mean() - 0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 4:
        vae.sample(8)
