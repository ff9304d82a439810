import torch
from torch import nn

net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(400, 12)
y = x[:, :3].argmax(1)
for epoch in range(4):
    for b in torch.randperm(300).split(30):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x[b]), y[b])
        loss = torch.tensor(loss.item(), requires_grad=True)
        loss.backward()
        opt.step()
    with torch.no_grad():
        print(epoch, (net(x[300:]).argmax(1) == y[300:]).float().mean().item())
