import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.var = nn.Linear(20, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, log_var = self.mu(h), self.var(h)
        z = mu + torch.randn_like(mu) * (0.5 * log_var).exp()
        return self.dec(z), mu, log_var


net = VAE()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
x = torch.rand(300, 20).round()
for _ in range(30):
    batch = x[torch.randint(300, (50,))]
    logits, mu, log_var = net(batch)
    rec = F.binary_cross_entropy_with_logits(logits, batch, reduction="sum") / len(batch)
    kl = -0.5 * (1 + log_var - mu**2 - log_var.exp()).sum(1).mean()
    opt.zero_grad()
    (rec + kl).backward()
    opt.step()
