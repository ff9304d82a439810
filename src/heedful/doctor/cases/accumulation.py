"""A batch of 32 in 16 pieces of two, with BatchNorm: not the gradient of a batch of 32."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(512, 20)
y = (x[:, :5] @ torch.randn(5, 5)).argmax(1)

model = nn.Sequential(
    nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(),
    nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
    nn.Linear(64, 5),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
pieces = 16

for _ in range(60):
    optimizer.zero_grad()
    batch = torch.randperm(512)[:32]
    for part in batch.chunk(pieces):
        loss = criterion(model(x[part]), y[part]) / pieces
        loss.backward()
    optimizer.step()
