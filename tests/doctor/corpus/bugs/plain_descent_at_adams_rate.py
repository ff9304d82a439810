import torch
from sklearn.datasets import load_digits
from torch import nn

digits = load_digits()
pictures, labels = torch.tensor(digits.images / 16).float().unsqueeze(1), torch.tensor(digits.target)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
for epoch in range(3):
    for b in torch.randperm(1400).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(pictures[b]), labels[b]).backward()
        optimizer.step()
