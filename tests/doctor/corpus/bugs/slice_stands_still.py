import torch
from torch import nn

data = torch.randn(1000, 12)
labels = data[:, :4].argmax(1)
net = nn.Linear(12, 4)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
batch_size, start = 50, 0
for i in range(30):
    x, y = data[start : start + batch_size], labels[start : start + batch_size]
    sgd.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    sgd.step()
