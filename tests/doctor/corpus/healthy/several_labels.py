import torch
from torch import nn

net = nn.Sequential(nn.Linear(14, 40), nn.ReLU(), nn.Linear(40, 6))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
x = torch.randn(256, 14)
y = (x[:, :6] > 0.5).float()
loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.full((6,), 2.0))
for _ in range(30):
    k = torch.randint(256, (32,))
    opt.zero_grad()
    loss_fn(net(x[k]), y[k]).backward()
    opt.step()
