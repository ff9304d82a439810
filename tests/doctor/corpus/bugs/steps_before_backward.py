import torch
from torch import nn

net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.randn(200, 6)
label = (data[:, 0] * data[:, 1] > 0).long()
for i in range(30):
    optimizer.zero_grad()
    sel = torch.randint(200, (25,))
    loss = nn.functional.cross_entropy(net(data[sel]), label[sel])
    optimizer.step()
    loss.backward()
