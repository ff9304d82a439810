import torch
from torch import nn

x = torch.randn(200, 10)
y = (x[:, 0] > 0).long()
train_x, train_y, test_x, test_y = x[:150], y[:150], x[150:], y[150:]
net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(30):
    net.train()
    opt.zero_grad()
    nn.functional.cross_entropy(net(train_x), train_y).backward()
    opt.step()
net.eval()
with torch.no_grad():
    for a, b in ((train_x, train_y), (test_x, test_y)):
        print((net(a).argmax(1) == b).float().mean().item())
