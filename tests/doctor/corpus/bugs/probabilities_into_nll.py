import torch
from torch import nn

net = nn.Linear(8, 3)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(200, 8)
y = x[:, :3].argmax(1)
nll = nn.NLLLoss()
for _ in range(25):
    k = torch.randint(200, (25,))
    opt.zero_grad()
    nll(net(x[k]).softmax(1), y[k]).backward()
    opt.step()
