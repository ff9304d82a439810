import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 6))
decoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 24))
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)
x = torch.randn(300, 5) @ torch.randn(5, 24) / 2
for _ in range(40):
    clean = x[torch.randint(300, (50,))]
    rebuilt = decoder(encoder(clean + 0.1 * torch.randn_like(clean)))
    loss = (rebuilt - clean).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
