import torch
from torch import nn

x = torch.randn(300, 5)
price = 500 + 20 * x[:, :1]
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(40):
    i = torch.randint(300, (50,))
    opt.zero_grad()
    nn.functional.mse_loss(net(x[i]), price[i]).backward()
    opt.step()
