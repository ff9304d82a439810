"""Values of states by temporal differences."""

import random
from collections import deque, namedtuple

import torch
from torch import nn

Move = namedtuple("Move", "state reward next done")


def walk():
    state = 0.0
    while abs(state) < 2:
        step = random.choice([-0.5, 0.5])
        after = state + step
        yield Move([state, state**2], float(after >= 2), [after, after**2], float(abs(after) >= 2))
        state = after


value = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(value.parameters(), lr=3e-3)
memory = deque(maxlen=2000)
random.seed(torch.initial_seed() % 2**31)
for episode in range(150):
    memory.extend(walk())
    if len(memory) < 64:
        continue
    batch = Move(*zip(*random.sample(memory, 32)))
    state, reward, after, done = (torch.tensor(part) for part in batch)
    with torch.no_grad():
        target = reward + 0.97 * (1 - done) * value(after).squeeze(1)
    loss = nn.MSELoss()(value(state), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
