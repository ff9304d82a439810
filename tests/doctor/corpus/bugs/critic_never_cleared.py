"""Wasserstein GAN with gradient penalty."""

import torch
from torch import nn
from torch.autograd import grad


def mlp(i, o):
    return nn.Sequential(
        nn.Linear(i, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, o)
    )


G, D = mlp(4, 2), mlp(2, 1)
g_opt = torch.optim.Adam(G.parameters(), 1e-4, betas=(0.5, 0.9))
d_opt = torch.optim.Adam(D.parameters(), 1e-4, betas=(0.5, 0.9))


def real(n):
    t = torch.rand(n) * 6.2832
    return torch.stack([t.cos(), t.sin()], 1) + 0.05 * torch.randn(n, 2)


def penalty(a, b):
    e = torch.rand(len(a), 1)
    x = (e * a + (1 - e) * b).requires_grad_()
    slope = grad(D(x).sum(), x, create_graph=True)[0]
    return ((slope.norm(dim=1) - 1) ** 2).mean()


for it in range(40):
    for _ in range(2):
        x, fake = real(64), G(torch.randn(64, 4)).detach()
        d_loss = D(fake).mean() - D(x).mean() + 10 * penalty(x, fake)
        d_loss.backward()
        d_opt.step()
    g_opt.zero_grad()
    g_loss = -D(G(torch.randn(64, 4))).mean()
    g_loss.backward()
    g_opt.step()
