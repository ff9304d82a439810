"""Hinge GAN with spectral norms, two critic steps for one of the generator."""

import math

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm as sn


class Generator(nn.Module):
    def __init__(self, noise=8):
        super().__init__()
        self.noise = noise
        self.net = nn.Sequential(
            nn.Linear(noise, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
        )

    def forward(self, n):
        return self.net(torch.randn(n, self.noise))


def real(n):
    k = torch.randint(8, (n,)) * math.pi / 4
    return torch.stack([k.cos(), k.sin()], 1) + 0.03 * torch.randn(n, 2)


generator = Generator()
critic = nn.Sequential(
    sn(nn.Linear(2, 64)), nn.LeakyReLU(0.1), sn(nn.Linear(64, 64)), nn.LeakyReLU(0.1), sn(nn.Linear(64, 1))
)
g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
c = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
for step in range(60):
    for _ in range(2):
        with torch.no_grad():
            fake = generator(64)
        loss = (1 - critic(real(64))).relu().mean() + (1 + critic(fake)).relu().mean()
        c.zero_grad()
        loss.backward()
        c.step()
    g.zero_grad()
    (-critic(generator(64)).mean()).backward()
    g.step()
