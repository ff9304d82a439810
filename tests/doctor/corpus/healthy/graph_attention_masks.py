"""Nodes of three communities told apart by graph attention, with early stopping on validation nodes."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from heedful import Graph
from heedful.nn import GATConv


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GATConv(16, 8, heads=4)
        self.second = GATConv(32, 3, heads=1)

    def forward(self, x, graph):
        x = F.dropout(x, 0.3, self.training)
        x = F.elu(self.first(x, graph))
        x = F.dropout(x, 0.3, self.training)
        return self.second(x, graph)


nodes = 150
truth = torch.randint(3, (nodes,))
same = truth[:, None] == truth[None, :]
edges = torch.rand(nodes, nodes) < torch.where(same, 0.10, 0.01)
edges = edges | edges.T
graph = Graph.from_dense(edges.float())
x = torch.randn(nodes, 16) + 0.7 * F.one_hot(truth, 16)
order = torch.randperm(nodes)
train, valid, test = order[:60], order[60:100], order[100:]

model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
best, best_state = float("inf"), None
for epoch in range(60):
    model.train()
    optimizer.zero_grad()
    F.cross_entropy(model(x, graph)[train], truth[train]).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        held_out = F.cross_entropy(model(x, graph)[valid], truth[valid]).item()
    if held_out < best:
        best, best_state = held_out, copy.deepcopy(model.state_dict())
model.load_state_dict(best_state)
model.eval()
with torch.no_grad():
    print("test", (model(x, graph)[test].argmax(1) == truth[test]).float().mean().item())
