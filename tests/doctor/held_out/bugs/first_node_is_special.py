"""Messages along edges, and a running sum over the nodes as they are numbered."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(5, 24), nn.Linear(24, 24), nn.Linear(24, 2)

    def forward(self, x, edges):
        source, target = edges
        h = self.a(x).relu()
        h = torch.zeros_like(h).index_add(0, target, h[source]) + h.cumsum(0) / len(h)
        return self.out(self.b(h).relu())


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for _ in range(60):
    x, edges = torch.randn(40, 5), torch.randint(40, (2, 120))
    heard = torch.zeros(40).index_add(0, edges[1], x[edges[0], 0])
    loss = nn.functional.cross_entropy(net(x, edges), (heard > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
