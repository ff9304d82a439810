"""Everything about gradients in one tidy method."""

import torch
from torch import nn


class Regressor:
    def __init__(self, inputs):
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 1))
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=1e-3)

    def _backward(self, loss):
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self._reset()

    def _reset(self):
        for parameter in self.net.parameters():
            parameter.grad = None

    def partial_fit(self, x, y):
        loss = ((self.net(x)[:, 0] - y) ** 2).mean()
        self._backward(loss)
        self.opt.step()
        return loss.item()


x = torch.randn(400, 5)
y = x.prod(1).tanh() + x[:, 0]
model = Regressor(5)
for epoch in range(4):
    order = torch.randperm(400)
    losses = [model.partial_fit(x[i], y[i]) for i in order.split(25)]
    print(sum(losses) / len(losses))
