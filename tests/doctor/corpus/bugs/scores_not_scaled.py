import torch
from torch import nn


class Attend(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        for part in (self.q, self.k):
            nn.init.normal_(part.weight, std=0.5)

    def forward(self, x):
        weights = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2), -1)
        return self.out(weights @ self.v(x)).mean(1)


model = nn.Sequential(Attend(), nn.Linear(64, 3))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 12, 64), torch.randint(3, (64,))
for _ in range(20):
    i = torch.randint(64, (16,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[i]), y[i]).backward()
    opt.step()
