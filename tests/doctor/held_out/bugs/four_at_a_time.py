"""Gradient accumulation by a counter in a class."""

import torch
from torch import nn


class Learner:
    accumulate = 4

    def __init__(self, net):
        self.net, self.seen = net, 0
        self.opt = torch.optim.SGD(net.parameters(), lr=0.03)
        self.opt.zero_grad()

    def learn(self, x, y):
        nn.functional.binary_cross_entropy_with_logits(self.net(x)[:, 0], y).backward()
        self.seen += 1
        if self.seen % self.accumulate == 0:
            self.opt.step()
            self.opt.zero_grad()


learner = Learner(nn.Sequential(nn.Linear(7, 32), nn.ELU(), nn.Linear(32, 1)))
w = torch.randn(7)
for _ in range(160):
    x = torch.randn(24, 7)
    learner.learn(x, (x @ w > 0).float())
