"""A vector-quantised autoencoder."""

import torch
import torch.nn.functional as F
from torch import nn


class VectorQuantizer(nn.Module):
    def __init__(self, codes=32, dim=8):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        self.codebook.weight.data.uniform_(-1, 1)

    def forward(self, z):
        d = torch.cdist(z, self.codebook.weight)
        q = self.codebook(d.argmin(-1))
        commitment = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commitment


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 64), nn.SiLU(), nn.Linear(64, 8))
        self.quantizer = VectorQuantizer()
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 20))

    def forward(self, x):
        q, commitment = self.quantizer(self.encoder(x))
        return self.decoder(q), commitment


model = VQVAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
centres = torch.randn(16, 20)
for step in range(60):
    x = centres[torch.randint(16, (64,))] + 0.1 * torch.randn(64, 20)
    out, commitment = model(x)
    loss = F.mse_loss(out, x) + 0.25 * commitment
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
