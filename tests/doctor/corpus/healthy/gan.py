import torch
from torch import nn

G = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
D = nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
optG = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
optD = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
real_data = torch.randn(256, 10) * 0.5 + 1
fixed = torch.randn(16, 4)
for step in range(30):
    real = real_data[torch.randint(256, (16,))]
    ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
    D.zero_grad()
    bce(D(real), ones).backward()
    fake = G(torch.randn(16, 4))
    bce(D(fake.detach()), zeros).backward()
    optD.step()
    G.zero_grad()
    bce(D(fake), ones).backward()
    optG.step()
    if step % 10 == 0:
        with torch.no_grad():
            G(fixed)
