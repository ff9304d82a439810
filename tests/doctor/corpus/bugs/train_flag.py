"""python script.py [--train]: trains anyway."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--train", action="store_true")
parser.add_argument("--dropout", default=0.3, type=float)
args = parser.parse_args()

model = nn.Sequential(
    nn.Linear(30, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Dropout(args.dropout),
    nn.Linear(64, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 5),
)
model.train(args.train)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
w = torch.randn(30, 5)
for step in range(100):
    x = torch.randn(32, 30)
    loss = nn.CrossEntropyLoss()(model(x), (x @ w).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
