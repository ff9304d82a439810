import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(10, 16)
        self.decoder = nn.Linear(16, 2)

    def forward(self, x):
        h = torch.relu(self.encoder(x))
        return self.decoder(h.detach())


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(200, 10)
y = (x[:, 0] > 0).long()
for _ in range(30):
    k = torch.randint(200, (40,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x[k]), y[k]).backward()
    opt.step()
