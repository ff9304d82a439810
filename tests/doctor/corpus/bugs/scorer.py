"""Early stopping on a validation score."""

import torch
from torch import nn


class EarlyStopping:
    def __init__(self, patience):
        self.best, self.left, self.patience = float("inf"), patience, patience

    def __call__(self, value):
        if value < self.best:
            self.best, self.left = value, self.patience
        else:
            self.left -= 1
        return self.left == 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(8, 64),
            nn.ReLU(),
            nn.Dropout(0.4),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Dropout(0.4),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.inner(x).squeeze(-1)


def make(n):
    x = torch.randn(n, 8)
    return x, x[:, 0] * x[:, 1] + x[:, 2]


def validate(model, data):
    with torch.inference_mode():
        return nn.functional.mse_loss(model(data[0]), data[1]).item()


train, valid = make(600), make(150)
model, stop = Model(), EarlyStopping(5)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
model.train()
for epoch in range(10):
    for part in torch.randperm(600).split(30):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(train[0][part]), train[1][part]).backward()
        optimizer.step()
    if stop(validate(model, valid)):
        break
