import torch
from torch import nn

net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=2)
x, xv = torch.randn(200, 6), torch.randn(60, 6)
y, yv = x[:, :1] ** 2, xv[:, :1] ** 2
for epoch in range(6):
    net.train()
    for part in torch.randperm(200).split(40):
        opt.zero_grad()
        nn.functional.mse_loss(net(x[part]), y[part]).backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        sched.step(nn.functional.mse_loss(net(xv), yv))
