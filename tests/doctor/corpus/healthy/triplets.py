import torch
from torch import nn

net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 6))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
criterion = nn.TripletMarginLoss()
x = torch.randn(200, 10)
for _ in range(30):
    i, j = torch.randint(200, (2, 16))
    loss = criterion(net(x[i]), net(x[i] + 0.1 * torch.randn(16, 10)), net(x[j]))
    opt.zero_grad()
    loss.backward()
    opt.step()
