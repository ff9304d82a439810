import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.out = nn.Linear(8, 1), nn.Linear(1, 3)

    def forward(self, x):
        gate = torch.softmax(self.score(x), dim=-1)  # one number: always 1
        return self.out(gate)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(240, 8)
y = x[:, :3].argmax(1)
for _ in range(40):
    k = torch.randint(240, (30,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x[k]), y[k]).backward()
    opt.step()
