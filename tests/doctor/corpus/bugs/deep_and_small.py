import torch
from torch import nn


class Deep(nn.Module):
    def __init__(self, depth=24, width=24):
        super().__init__()
        self.first = nn.Linear(6, width)
        self.rest = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.rest:
            x = torch.relu(layer(x))
        return self.last(x)


net = Deep()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(200, 6)
y = (x[:, 0] > 0).long()
for _ in range(25):
    k = torch.randint(200, (40,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x[k]), y[k]).backward()
    opt.step()
