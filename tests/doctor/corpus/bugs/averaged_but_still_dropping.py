"""Stochastic weight averaging, with a look at the held-out data after every epoch."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(900, 12)
y = (x[:, 0] * x[:, 1] > 0).long()
train = DataLoader(TensorDataset(x[:700], y[:700]), 50, shuffle=True)
held = DataLoader(TensorDataset(x[700:], y[700:]), 100)
model = nn.Sequential(
    nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
)
average = AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = SWALR(opt, swa_lr=0.05, anneal_epochs=2)


def score(net):
    right = 0
    with torch.no_grad():
        for a, b in held:
            right += (net(a).argmax(1) == b).sum().item()
    return right / 200


for epoch in range(5):
    model.train()
    for a, b in train:
        opt.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        opt.step()
    if epoch >= 2:
        average.update_parameters(model)
        schedule.step()
    print(epoch, score(model))
