"""Everything is a function that returns a function."""

import itertools

import torch
from torch import nn


def make_model(sizes):
    parts = []
    for a, b in itertools.pairwise(sizes):
        parts += [nn.Linear(a, b), nn.SiLU()]
    return nn.Sequential(*parts[:-1])


def make_loss(model):
    return lambda x, y: (model(x) - y).abs().mean()


def make_update(loss_of, optimizer):
    def update(*batch):
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return update


def make_batches(f, size):
    def batches(n):
        for _ in range(n):
            x = 4 * torch.rand(size, 2) - 2
            yield x, f(x)

    return batches


model = make_model([2, 64, 64, 1])
update = make_update(make_loss(model), torch.optim.Adam(model.parameters(), lr=3e-3))
batches = make_batches(lambda x: (x[:, :1] * 2).sin() * x[:, 1:].cos(), 128)
losses = [update(*batch) for batch in batches(150)]
print(torch.stack(losses)[-10:].mean())
