import torch
from torch import nn


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(50, 8), nn.Embedding(80, 8)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.3)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


net = Factors()
opt = torch.optim.Adam(net.parameters(), lr=2e-2)
users, items, ratings = torch.randint(50, (600,)), torch.randint(80, (600,)), torch.randn(600)
for epoch in range(4):
    for k in torch.randperm(600).split(60):
        opt.zero_grad()
        nn.functional.mse_loss(net(users[k], items[k]), ratings[k]).backward()
        opt.step()
