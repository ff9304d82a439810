"""An Accumulator helps with the scaling."""

import torch
from torch import nn


class Accumulator:
    def __init__(self, optimizer, every):
        self.optimizer, self.every, self.count = optimizer, every, 0

    def backward(self, loss):
        (loss / self.every).backward()
        self.count += 1
        if self.count == self.every:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.count = 0


EVERY = 4
teacher = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 2))
student = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 2))
accumulator = Accumulator(torch.optim.SGD(student.parameters(), lr=0.2), EVERY)
for i in range(160):
    x = torch.randn(16, 6)
    with torch.no_grad():
        y = teacher(x)
    loss = nn.functional.smooth_l1_loss(student(x), y)
    accumulator.backward(loss / EVERY)
