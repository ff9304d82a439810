"""Graph convolution with dense adjacency; sinusoids of the node's number are added, as for words."""

import torch
import torch.nn.functional as F
from torch import nn


class GCN(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.one, self.two = nn.Linear(inputs, hidden), nn.Linear(hidden, classes)

    def forward(self, x, adjacency):
        place = torch.arange(x.shape[0], dtype=torch.float)[:, None] / 10
        x = x + torch.cat([place.sin(), place.cos()], 1).repeat(1, x.shape[1] // 2)
        h = F.relu(adjacency @ self.one(x))
        return adjacency @ self.two(h)


nodes, groups = 90, 3
group = torch.randint(groups, (nodes,))
edges = torch.rand(nodes, nodes) < torch.where(group[:, None] == group, 0.2, 0.02)
edges = (edges | edges.T | torch.eye(nodes, dtype=torch.bool)).float()
root = edges.sum(1).rsqrt()
adjacency = root[:, None] * edges * root
x = torch.randn(nodes, 12) + F.one_hot(group, 12)
train = torch.randperm(nodes)[:45]

net = GCN(12, 24, groups)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(60):
    opt.zero_grad()
    loss = F.cross_entropy(net(x, adjacency)[train], group[train])
    loss.backward()
    opt.step()
