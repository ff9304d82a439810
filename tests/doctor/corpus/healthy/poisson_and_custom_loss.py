import torch
from torch import nn


class Rate(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 16), nn.Linear(16, 1)])

    def forward(self, x):
        return self.layers[1](torch.tanh(self.layers[0](x))).squeeze(-1)


net = Rate()
opt = torch.optim.NAdam(net.parameters(), lr=5e-3)
x = torch.randn(300, 6)
y = torch.poisson((0.5 * x[:, 0]).exp())
for epoch in range(5):
    for k in torch.randperm(300).split(50):
        log_rate = net(x[k])
        loss = (log_rate.exp() - y[k] * log_rate).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
