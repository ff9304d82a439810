"""python train.py --accumulate 4"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    return parser.parse_args()


def main():
    args = parse()
    x = torch.randn(512, 10)
    y = (x[:, :5].sum(1) > x[:, 5:].sum(1)).long()
    loader = DataLoader(TensorDataset(x, y), args.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 40), nn.LayerNorm(40), nn.ReLU(), nn.Linear(40, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        total = 0.0
        for i, (inputs, labels) in enumerate(loader):
            loss = criterion(model(inputs), labels)
            loss.backward()
            total += loss.item()
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch}: {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
