"""Step decay, told to the scheduler when an epoch begins."""

import torch
from torch import nn
from torch.optim.lr_scheduler import MultiStepLR


def loop(model, data, epochs):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = MultiStepLR(optimizer, milestones=[4, 6], gamma=0.3)
    for epoch in range(epochs):
        scheduler.step()
        for x, y in data():
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(-1), y)
            loss.backward()
            optimizer.step()
        print(epoch, scheduler.get_last_lr()[0], loss.item())


def data():
    for _ in range(12):
        x = torch.randn(32, 2)
        yield x, (x.norm(dim=1) > 1.18).float()


loop(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1)), data, 8)
