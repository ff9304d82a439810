"""python train.py --epochs 3 --lr 0.1: SGD, cosine, BatchNorm, weight decay on weights only."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.n, self.m = nn.BatchNorm2d(c), nn.BatchNorm2d(c)

    def forward(self, x):
        return (x + self.m(self.b(self.n(self.a(x)).relu()))).relu()


def data(n):
    y = torch.randint(3, (n,))
    grid = torch.arange(8.0)
    waves = torch.stack(
        [(grid[:, None] + 0 * grid).sin(), (grid + 0 * grid[:, None]).sin(), (grid[:, None] + grid).sin()]
    )
    return waves[y][:, None] + 0.8 * torch.randn(n, 1, 8, 8), y


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args(arguments)
    train, test = (TensorDataset(*data(n)) for n in (640, 160))
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        Block(12),
        Block(12),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 3),
    )
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.SGD(
        [{"params": decay, "weight_decay": 5e-4}, {"params": rest, "weight_decay": 0.0}],
        lr=args.lr,
        momentum=0.9,
        nesterov=True,
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        model.train()
        for x, y in DataLoader(train, 32, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, 80))
        print(epoch, right / len(test))


main()
