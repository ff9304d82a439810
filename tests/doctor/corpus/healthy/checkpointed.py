import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU()) for _ in range(4)
        )
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
x = torch.randn(200, 16)
y = (x[:, 0] > 0).long()
for _ in range(20):
    k = torch.randint(200, (25,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x[k]), y[k]).backward()
    opt.step()
