"""Convolutional β-VAE on drawn discs; the KL's weight grows from 0 to 1."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def draw_discs(count, size=16):
    axis = torch.arange(size).float()
    cx, cy, r = (
        torch.rand(count, 1, 1) * 8 + 4,
        torch.rand(count, 1, 1) * 8 + 4,
        torch.rand(count, 1, 1) * 3 + 2,
    )
    return (((axis[None, :, None] - cy) ** 2 + (axis[None, None, :] - cx) ** 2) < r**2).float()[:, None]


class VAE(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.BatchNorm2d(32),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )
        self.mu, self.logvar = nn.Linear(512, latent), nn.Linear(512, latent)
        self.up = nn.Linear(latent, 512)
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.dec(F.relu(self.up(z)).view(-1, 32, 4, 4)), mu, logvar


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--latent", type=int, default=8)
    a = p.parse_args()
    images = draw_discs(512)
    model = VAE(a.latent)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(a.steps):
        x = images[torch.randperm(512)[:64]]
        logits, mu, logvar = model(x)
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        loss = rec + min(1.0, step / 40) * kl
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()
