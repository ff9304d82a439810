"""Predictions are kept for the epoch's metrics."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Metrics:
    def __init__(self):
        self.outputs, self.targets = [], []

    def update(self, output, target):
        self.outputs.append(output)
        self.targets.append(target)

    def accuracy(self):
        return (torch.cat(self.outputs).argmax(1) == torch.cat(self.targets)).float().mean().item()


prototypes = torch.randn(5, 40)
y = torch.randint(5, (1600,))
x = prototypes[y] + torch.randn(1600, 40)
loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
optimizer = torch.optim.Adam(model.parameters())
metrics = Metrics()
for epoch in range(2):
    for inputs, targets in loader:
        output = model(inputs)
        loss = nn.functional.cross_entropy(output, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics.update(output, targets)
    print(metrics.accuracy())
