import torch
import torch.nn.functional as F
from torch import nn


class Pool(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.register_buffer("query", torch.zeros(1, 1, width))  # meant to be learned

    def forward(self, x):
        scores = self.query @ self.key(x).transpose(1, 2) / 4
        return (scores.softmax(-1) @ self.value(x)).squeeze(1)


net = nn.Sequential(Pool(), nn.Linear(16, 4))
opt = torch.optim.Adam([p for n, p in net.named_parameters() if "key" not in n], lr=1e-3)
net[0].key.requires_grad_(False)
x, y = torch.randn(80, 9, 16), torch.randint(4, (80,))
net[0].query.requires_grad_(True)
for _ in range(20):
    k = torch.randint(80, (16,))
    opt.zero_grad()
    F.cross_entropy(net(x[k]), y[k]).backward()
    opt.step()
