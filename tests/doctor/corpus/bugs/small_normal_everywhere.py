"""A deep perceptron with the first weights of a transformer."""

import torch
from torch import nn


def init(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


layers = [nn.Linear(20, 64)]
for _ in range(9):
    layers += [nn.Tanh(), nn.Linear(64, 64)]
model = nn.Sequential(*layers, nn.Tanh(), nn.Linear(64, 3)).apply(init)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
a = torch.randn(20, 3)
for _ in range(60):
    x = torch.randn(64, 20)
    loss = nn.functional.cross_entropy(model(x), (x @ a).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
