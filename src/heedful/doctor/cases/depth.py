"""20 layers train, 56 do not: no skips. `-- 20` is the shallow one."""

import sys

import torch
from torch import nn

depth = int(sys.argv[1]) if len(sys.argv) > 1 else 56
torch.manual_seed(0)
x = torch.randn(512, 3, 8, 8)
y = (x.mean((2, 3)) @ torch.randn(3, 10)).argmax(1)


def layer(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


model = nn.Sequential(
    *layer(3, 16),
    *[part for _ in range(depth - 2) for part in layer(16, 16)],
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()

for _ in range(16):
    batch = torch.randint(512, (32,))
    optimizer.zero_grad()
    loss = criterion(model(x[batch]), y[batch])
    loss.backward()
    optimizer.step()
