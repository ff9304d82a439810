import torch
from torch import nn
from torch.autograd import Variable

net = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
x = torch.randn(200, 5)
y = x[:, :1]
for _ in range(30):
    k = torch.randint(200, (20,))
    for p in net.parameters():
        if p.grad is not None:
            p.grad.data.zero_()
    loss = nn.MSELoss()(net(Variable(x[k])), Variable(y[k]))
    loss.backward()
    opt.step()
